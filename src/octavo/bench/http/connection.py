"""One HTTP/1.1 connection: a request at a time, the body of the response as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

OnBody = Callable[[int, bytes], None]
"""Called with the status and a piece of the body, as soon as it has arrived."""


class Lost(ConnectionError):
    """The connection ended within a response; `fresh`: before its first byte."""

    def __init__(self, message: str, fresh: bool) -> None:
        super().__init__(message)
        self.fresh = fresh


class Connection(asyncio.Protocol):
    """An asyncio protocol over httptools' parser. Exceptions of `on_body` fail the request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[int] | None = None
        self._on_body: OnBody | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._any = False  # a byte of the response has come
        self._framed = False  # the response says where it ends
        self._headers_done = False
        self.is_reusable = True

    def request(self, data: bytes, on_body: OnBody) -> asyncio.Future[int]:
        """Send the bytes of a request; the future gives the status once the response is
        complete."""
        assert self._transport is not None
        assert self._done is None or self._done.done()
        self._done = asyncio.get_running_loop().create_future()
        self._on_body = on_body
        self._parser = httptools.HttpResponseParser(self)
        self._any = self._framed = self._headers_done = False
        if self._transport.is_closing():
            self._fail(Lost("the server closed the connection", True))
        else:
            self._transport.write(data)
        return self._done

    def close(self) -> None:
        """Close the connection; a request in progress is given up by its server."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse; the callbacks below do the rest."""
        if self._parser is None or self._done is None or self._done.done():
            self.close()  # bytes that nobody asked for
            return
        self._any = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not an HTTP response: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """The end of a response that did not say where it ends, or a failure."""
        self.is_reusable = False
        if self._done is None or self._done.done():
            return
        if error is None and self._headers_done and not self._framed:
            self._done.set_result(self._status())
            return
        why = "the server closed the connection"
        self._fail(Lost(why + (" within a response" if self._any else ""), not self._any))

    # -- httptools ---------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only whether the response says where it ends."""
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        """From here on the status is known."""
        self._headers_done = True

    def on_body(self, piece: bytes) -> None:
        """Hand the piece on."""
        assert self._on_body is not None
        self._on_body(self._status(), piece)

    def on_message_complete(self) -> None:
        """The response is whole."""
        assert self._parser is not None
        assert self._done is not None
        self.is_reusable = self.is_reusable and self._parser.should_keep_alive()
        if not self._done.done():
            self._done.set_result(self._status())

    def _status(self) -> int:
        assert self._parser is not None
        return self._parser.get_status_code()

    def _fail(self, error: BaseException) -> None:
        self.is_reusable = False
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

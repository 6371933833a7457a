"""The HTTP client against servers that are scripted byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

import pytest

from octavo.bench.http.client import HttpClient, HttpError
from octavo.errors import ConfigError
from tests.repo.doc_session import free_port

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def fetch(client: HttpClient, path: str, body: bytes | None) -> tuple[int, bytes]:
    pieces: list[bytes] = []
    status = await client.send("GET", path, body, lambda _, piece: pieces.append(piece))
    return status, b"".join(pieces)


class Served:
    """A server that handles each connection so; all are over when the block ends."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.num_connections = 0

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._handler(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.wait_for(asyncio.gather(*(t for t in self._tasks if t)), 10)


async def exchange(
    handler: Handler, times: int = 1, path: str = "/x", body: bytes | None = None
) -> tuple[list[int], list[bytes], int]:
    """(statuses, bodies, connections) of `times` requests, one after the other."""
    async with Served(handler) as served, HttpClient(served.url, {"X-Test": "1"}) as client:
        answers = [await fetch(client, path, body) for _ in range(times)]
    return [a[0] for a in answers], [a[1] for a in answers], served.num_connections


@pytest.mark.asyncio
async def test_lengths_and_kept_connections() -> None:
    seen = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await head(reader))
            seen.append(await reader.readexactly(2))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
            await asyncio.sleep(0.01)
            writer.write(b"lo")

    assert await exchange(handler, 3, body=b"{}") == ([200] * 3, [b"hello"] * 3, 1)
    assert seen[0].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-Test: 1\r\n" in seen[0]
    assert b"\r\nContent-Length: 2\r\n" in seen[0]
    assert seen[1] == b"{}"


@pytest.mark.asyncio
async def test_chunks_in_odd_pieces() -> None:
    answer = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await head(reader)
            for i in range(0, len(answer), 7):
                writer.write(answer[i : i + 7])
                await writer.drain()
                await asyncio.sleep(0)

    assert await exchange(handler, 2) == ([201] * 2, [b"abc0123456789"] * 2, 1)


@pytest.mark.asyncio
async def test_a_body_until_the_connection_ends() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    assert await exchange(handler, 2) == ([200] * 2, [b"all of it"] * 2, 2)


@pytest.mark.asyncio
async def test_a_connection_that_was_closed_in_between_is_opened_again() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)  # one request for each connection, without saying so
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    assert await exchange(handler, 3) == ([200] * 3, [b"ok"] * 3, 3)


@pytest.mark.asyncio
async def test_connection_close_is_kept_to() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await head(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")

    assert await exchange(handler, 2) == ([200] * 2, [b"ok"] * 2, 2)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "the server closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "within a response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "within a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "within a response"),
        (b"SSH-2.0-nope\r\n", "not an HTTP response"),
    ],
)
@pytest.mark.asyncio
async def test_answers_that_are_none(answer: bytes, error: str) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(answer)
        await writer.drain()

    with pytest.raises(ConnectionError, match=error):
        await exchange(handler)


@pytest.mark.asyncio
async def test_an_error_of_the_receiver_comes_back_to_the_caller() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def refuse(status: int, piece: bytes) -> None:
        raise ValueError(f"{status} {piece!r}")

    async with Served(handler) as served, HttpClient(served.url + "/v1/") as client:
        with pytest.raises(ValueError, match="200 b'ok'"):
            await client.send("GET", "/", None, refuse)


@pytest.mark.asyncio
async def test_json_and_other_statuses() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if b"GET /base/good" in await head(reader):
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}')
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async with Served(handler) as served, HttpClient(served.url + "/base/v1") as client:
        assert await client.get_json("/good") == {"a": 1}
        with pytest.raises(HttpError, match="expected status 200, got 404") as error:
            await client.get_json("/bad")
        assert error.value.status == 404


@pytest.mark.asyncio
async def test_nobody_listens() -> None:
    async with HttpClient(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(OSError, match="Connect call failed"):
            await client.send("GET", "/", None, lambda *_: None)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:port", "unix:/x"]
)
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(ConfigError, match="--base-url: expected http://HOST:PORT"):
        HttpClient(url)

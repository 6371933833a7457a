"""Requests to one server, over connections that are kept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from octavo.bench.http.connection import Connection, Lost, OnBody
from octavo.errors import ConfigError


class HttpError(ConnectionError):
    """A response with another `status` than 200."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class HttpClient:
    """Use it as an asynchronous context manager; it opens as many connections as there are requests
    at once."""

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = base_url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise ConfigError(
                f"--base-url: expected http://HOST:PORT, got {base_url!r}", "base_url"
            )
        self._host = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path
        host = parts.netloc.rpartition("@")[2]
        lines = [f"Host: {host}", "Accept: */*", *(f"{k}: {v}" for k, v in (headers or {}).items())]
        self._head = "\r\n".join(lines)
        self._idle: list[Connection] = []

    async def send(self, method: str, path: str, body: bytes | None, on_body: OnBody) -> int:
        """One request; `on_body` gets the pieces of the response, the result is its status.

        Raises ConnectionError or OSError. Cancelling it closes the connection.
        """
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._head}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        data = (head + "\r\n").encode("latin-1") + (body or b"")
        while self._idle:
            try:
                return await self._over(self._idle.pop(), data, on_body)
            except Lost as error:  # kept too long: the server had closed it
                if not error.fresh:
                    raise
        return await self._over(await self._connect(), data, on_body)

    async def get_json(self, path: str) -> Any:
        """The JSON document at `path`. Raises HttpError for another status than 200."""
        pieces: list[bytes] = []
        status = await self.send("GET", path, None, lambda _, piece: pieces.append(piece))
        if status != 200:
            raise HttpError(f"GET {path}: expected status 200, got {status}", status)
        return msgspec.json.decode(b"".join(pieces))

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            Connection, self._host, self._port, ssl=self._ssl
        )
        return connection

    async def _over(self, connection: Connection, data: bytes, on_body: OnBody) -> int:
        try:
            status = await connection.request(data, on_body)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

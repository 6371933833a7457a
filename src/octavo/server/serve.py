"""Runs the app: the socket, the URL, the signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

import uvicorn
from fastapi import FastAPI

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.app import create_app
from octavo.server.context import ServingContext

log = logging.getLogger("octavo.server")

BACKLOG = 2048

KEEP_ALIVE_SECONDS = 30
"""Longer than clients keep idle connections (httpx: 5): no request meets a closing one."""

FLUSH_SECONDS = 5
"""How long connections may take to read what is left once the engine has drained."""

LAST_WORDS_SECONDS = 1
"""The same after a second signal, for the event that tells a stream that it was cut off."""


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket. Raises ConfigError if the address cannot be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
    except OSError as error:
        raise _refusal(config, error) from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _refusal(config, error) from None
    sock.setblocking(False)
    return sock


def _refusal(config: ServerConfig, error: OSError) -> ConfigError:
    at = f"cannot listen on {config.host}:{config.port} ({error.strerror})"
    if error.errno == errno.EADDRINUSE:
        remedy = "stop what uses it, or choose another with --port (0 takes any free one)"
        return ConfigError(f"--port: {at}; {remedy}", "port")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigError(f"--port: {at}; choose one above 1023", "port")
    remedy = "expected an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
    return ConfigError(f"--host: {at}; {remedy}", "host")


def url_of(sock: socket.socket) -> str:
    """The URL that reaches a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server, with signals that drain: new requests get 503 while running ones end.

    A second signal ends the process with status 1, once every stream has got an error.
    """

    def __init__(self, app: FastAPI, ctx: ServingContext, config: ServerConfig, url: str) -> None:
        debug = config.log_level == "debug"
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="info" if debug else "warning",
                access_log=debug,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=FLUSH_SECONDS,
            )
        )
        self._app = app
        self._ctx = ctx
        self._url = url
        self._drain: asyncio.Task[None] | None = None
        self._cut: asyncio.Task[None] | None = None
        self._last_drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        await super().startup(sockets)
        if self.started:
            name = self._ctx.model_name
            print(f"Serving {name} at {self._url}/v1 (docs: {self._url}/docs)", flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT drains, the second exits at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handled = (signal.SIGINT, signal.SIGTERM)
        for number in handled:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Drain; when called again, cut off what runs and exit. To be called in the event loop."""
        loop = asyncio.get_running_loop()
        if self._drain is None:
            self._app.state.is_draining = True
            self._drain = loop.create_task(self._finish())
        elif self._cut is None:
            self._cut = loop.create_task(self._cut_off())
        else:
            _exit_now()

    async def _finish(self) -> None:
        running = self._ctx.engine.stats().num_requests_running
        timeout = self._ctx.drain_timeout
        log.info("stopping: %d running, at most %.0f s; again to stop now", running, timeout)
        try:
            await self._ctx.engine.drain(timeout)
        finally:
            self.should_exit = True

    async def _cut_off(self) -> None:
        """Fail all streams, let their clients read that, and exit."""
        log.info("stopping now: what runs is cut off")
        # Not awaited: it fails the streams at once, but then may wait for a long step.
        self._last_drain = asyncio.get_running_loop().create_task(self._ctx.engine.drain(0.0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                while self.server_state.tasks:
                    await asyncio.sleep(0.01)
        _exit_now()


def _exit_now() -> NoReturn:
    """Exit with status 1, whatever threads and kernels still do; unwinding would wait for them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(1)


def serve(ctx: ServingContext, config: ServerConfig, sock: socket.socket | None = None) -> None:
    """Serve until a signal; returns after a clean end. A second signal ends the process.

    `sock`: a socket from `bind`, for callers that take the port before they load the model.
    """
    sock = sock or bind(config)
    server = Server(create_app(ctx), ctx, config, url_of(sock))
    server.run(sockets=[sock])

"""Runs the app: the socket, the URL, the signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.app import create_app
from octavo.server.context import ServingContext

log = logging.getLogger("octavo.server")

BACKLOG = 2048

KEEP_ALIVE_SECONDS = 30
"""Longer than clients keep idle connections (httpx: 5), so that a request never meets a closing one."""

FLUSH_SECONDS = 5
"""How long connections may take to read what is left once the engine has drained."""


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
    """uvicorn's server, with signals that drain: new requests get 503 while running ones end."""

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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        await super().startup(sockets)
        if self.started:
            name = self._ctx.model_name
            print(f"Serving {name} at {self._url}/v1 (reference: {self._url}/docs)", flush=True)

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
        """Drain; when called again, exit now. To be called in the event loop."""
        if self._drain is not None:
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = self.force_exit = True
            return
        self._app.state.is_draining = True
        self._drain = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        running = self._ctx.engine.stats().num_requests_running
        timeout = self._ctx.drain_timeout
        log.info("stopping: %d running, at most %.0f s; again to stop now", running, timeout)
        try:
            await self._ctx.engine.drain(timeout)
        finally:
            self.should_exit = True


def serve(ctx: ServingContext, config: ServerConfig, sock: socket.socket | None = None) -> None:
    """Serve until a signal; returns after a clean end. Raises SystemExit(1) after a second signal,
    which cuts off what still runs.

    `sock`: a socket from `bind`, for callers that take the port before they load the model.
    """
    sock = sock or bind(config)
    server = Server(create_app(ctx), ctx, config, url_of(sock))
    server.run(sockets=[sock])
    if server.force_exit:
        raise SystemExit(1)

"""`octavo serve`."""

from __future__ import annotations

import os
import socket
import threading
from types import TracebackType
from typing import Any, Self

from octavo.cli import logs
from octavo.cli.progress import LoadBar
from octavo.config import ServerConfig
from octavo.errors import ConfigError


def serve(settings: dict[str, Any]) -> None:
    """Load the model and serve it until SIGTERM or Ctrl-C."""
    from octavo.llm.settings import engine_config, section

    if os.environ.get("OCTAVO_API_KEY", "key").strip() == "":
        raise ConfigError("OCTAVO_API_KEY: expected a key, got an empty one; unset it to need none")
    server_config: ServerConfig = section(ServerConfig, settings)
    config = engine_config(settings)
    logs.configure(server_config.log_level)
    with _Door(server_config) as door, LoadBar() as bar:
        from octavo.llm.build import build

        def progress(done: int, total: int) -> None:
            door.check()  # no port: no reason to load the rest
            bar(done, total)

        built = build(config, progress)
        sock = door.wait()
        from octavo.llm.serving import serving_context
        from octavo.server.serve import serve

        serve(serving_context(built, server_config), server_config, sock)


class _Door:
    """Takes the port and imports the HTTP side in a thread, while the main one loads the model.

    Not the other way round: the main thread is the one that Ctrl-C reaches, and kernels must not
    run while the interpreter ends.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._sock: socket.socket | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._open, name="octavo-door")
        self._thread.start()

    def _open(self) -> None:
        try:
            from octavo.server.serve import bind

            self._sock = bind(self._config)
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise what went wrong so far, if anything did."""
        if self._error is not None:
            raise self._error

    def wait(self) -> socket.socket:
        """The bound socket. Raises ConfigError if the address cannot be had."""
        self._thread.join()
        self.check()
        assert self._sock is not None
        return self._sock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.join()
        if self._sock is not None:
            self._sock.close()

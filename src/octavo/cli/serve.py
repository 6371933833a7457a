"""`octavo serve`."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from octavo.cli import logs
from octavo.cli.progress import LoadBar
from octavo.config import EngineConfig, ServerConfig

if TYPE_CHECKING:
    from octavo.llm import Built

log = logging.getLogger(__name__)


def serve(settings: dict[str, Any]) -> None:
    """Load the model and serve it until SIGTERM or Ctrl-C."""
    from octavo.llm.settings import engine_config, section

    server_config: ServerConfig = section(ServerConfig, settings)
    config = engine_config(settings)
    logs.configure(server_config.log_level)
    loading = _Loading(config)
    # Beside the weights: the HTTP side takes most of a second to import.
    from octavo.server.serve import bind, serve

    with bind(server_config) as sock:
        built = loading.wait()
        from octavo.llm.serving import serving_context

        serve(serving_context(built, server_config), server_config, sock)


class _Loading:
    """`build` in a thread; `wait` gives its result or raises its error."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._built: Built | None = None
        self._error: BaseException | None = None
        # A daemon: if the port is taken there is no reason to wait for the weights.
        self._thread = threading.Thread(target=self._run, name="octavo-load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            from octavo.llm.build import build

            with LoadBar() as bar:
                self._built = build(self._config, bar)
        except BaseException as error:
            self._error = error

    def wait(self) -> Built:
        self._thread.join()
        if self._built is None:
            raise self._error or RuntimeError("loading ended without a result")
        return self._built

"""`octavo serve`."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from octavo import __version__
from octavo.cli import logs
from octavo.cli.progress import LoadBar
from octavo.config import EngineConfig, ServerConfig

if TYPE_CHECKING:
    from octavo.llm import Built
    from octavo.server.context import ServingContext

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

    sock = bind(server_config)
    serve(_context(loading.wait(), server_config), server_config, sock)


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


def _context(built: Built, config: ServerConfig) -> ServingContext:
    from octavo.engine.async_engine import AsyncEngine
    from octavo.server.context import ServingContext

    cache = built.config.cache
    return ServingContext(
        engine=AsyncEngine(
            built.core,
            built.tokenizer,
            built.limits,
            built.config.device.seed,
            check_when_idle=config.log_level == "debug",
        ),
        tokenizer=built.tokenizer,
        model_names=built.model_names,
        version=__version__,
        chat_template=built.chat_template,
        api_key=config.api_key,
        default_sampling=built.default_sampling,
        root=str(built.checkpoint.path),
        cache_info={
            "block_size": str(cache.block_size),
            "num_kv_blocks": str(built.kv_size.num_blocks),
            "cache_dtype": built.kv_size.shape.dtype,
            "enable_prefix_caching": str(cache.enable_prefix_caching),
        },
    )

"""A real server on a free port, with the fake engine behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from octavo.server.app import create_app
from octavo.server.context import ServingContext
from octavo.server.serve import Server, bind, url_of
from tests.server.fake_engine import ByteTokenizer, FakeEngine, PlainTemplate


class Live:
    """A server in a thread. `http` and `client` talk to it; `stop` drains it."""

    def __init__(self, engine: FakeEngine, **settings: Any) -> None:
        self.engine = engine
        settings.setdefault("chat_template", PlainTemplate())
        self.context = ServingContext(
            engine=engine,
            tokenizer=ByteTokenizer(),
            model_names=("tiny", "org/tiny-alias"),
            version="1.2.3",
            **settings,
        )
        config = ServerConfig(port=0)
        self._sock = bind(config)
        self.url = url_of(self._sock)
        self._server = Server(create_app(self.context), self.context, config, self.url)
        self._is_stopping = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(),))
        self._thread.start()
        assert self._ready.wait(10), "the server did not start"
        self.http = httpx.Client(base_url=self.url, timeout=10)
        self.client = openai.OpenAI(
            base_url=self.url + "/v1",
            api_key=[*self.context.api_keys, "none"][0],
            max_retries=0,
            timeout=10,
        )

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self._server.serve([self._sock]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self._ready.set()
        await serving

    def begin_stop(self) -> None:
        if not self._is_stopping:  # a second call would end this process
            self._is_stopping = True
            self._loop.call_soon_threadsafe(self._server.stop)

    def close(self) -> None:
        self.http.close()
        self.client.close()
        if self._thread.is_alive():
            self.begin_stop()
        self._thread.join(10)
        assert not self._thread.is_alive(), "the server did not stop"


@pytest.fixture
def launch() -> Iterator[Callable[..., Live]]:
    """Starts servers; they are stopped after the test."""
    started: list[Live] = []

    def start(engine: FakeEngine | None = None, **settings: Any) -> Live:
        started.append(Live(engine or FakeEngine(), **settings))
        return started[-1]

    yield start
    for live in started:
        live.close()


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """One server for the tests of a module that leave it as it is."""
    running = Live(FakeEngine())
    yield running
    running.close()

"""The engine behind an event loop: one thread steps the core, queues lead in and out."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from octavo.engine.core import EngineCore
from octavo.engine.frontend import Frontend, stopped_early
from octavo.engine.limits import EngineLimits
from octavo.engine.outputs import TextDelta
from octavo.engine.stats import EngineStats
from octavo.engine.stats_log import StatsLog
from octavo.errors import EngineStoppedError
from octavo.request import SamplingParams
from octavo.sched.outputs import SeqOutput
from octavo.text.tokenizer import Tokenizer

SAVE_AGAIN = 0.2
"""Seconds until an idle engine looks whether the disk takes more blocks."""

SAVE_AT_END = 20.0
"""Seconds that the end of the engine may take for writing blocks to the disk."""

log = logging.getLogger(__name__)


class TokenStream(AsyncIterator[TextDelta]):
    """A request's deltas. `aclose` (a client that hung up) aborts what still runs."""

    def __init__(self, request_id: str, num_choices: int, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._queue: asyncio.Queue[TextDelta | Exception] = asyncio.Queue()
        self._num_open = num_choices
        self._abort = abort

    def put(self, item: TextDelta | Exception) -> None:
        """Called in the event loop's thread."""
        self._queue.put_nowait(item)

    async def __anext__(self) -> TextDelta:
        if self._num_open == 0:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, Exception):
            self._num_open = 0
            raise item
        if item.finish_reason is not None:
            self._num_open -= 1
        return item

    async def aclose(self) -> None:
        """Abort what is still running; harmless after the end."""
        if self._num_open:
            self._num_open = 0
            self._abort(self.request_id)


class AsyncEngine:
    """Owns the engine thread. All methods are for the event loop's thread; `stats` for any.

    With `check_when_idle` the books are proved each time the engine runs out of work; with
    `log_stats` a busy engine logs a line every ten seconds.
    """

    def __init__(
        self,
        core: EngineCore,
        tokenizer: Tokenizer,
        limits: EngineLimits,
        seed: int = 0,
        check_when_idle: bool = False,
        log_stats: bool = False,
    ) -> None:
        self.core = core
        self.limits = limits
        self._frontend = Frontend(tokenizer, limits, seed)
        self._check_when_idle = check_when_idle
        self._stats_log = StatsLog(core.stats, log.info) if log_stats else None
        self._streams: dict[str, TokenStream] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._state = "new"
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine thread."""
        self._loop = asyncio.get_running_loop()
        self._state = "running"
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()

    async def drain(self, timeout: float = 30.0) -> None:
        """Take no more requests, finish those that run.

        After `timeout` seconds abort what is left.
        """
        if self._state == "running":
            self._state = "draining"
        deadline = self.core.clock() + timeout
        while self._streams and self._state == "draining" and self.core.clock() < deadline:
            await asyncio.sleep(0.02)
        for stream in list(self._streams.values()):
            stream.put(EngineStoppedError("the server is shutting down"))
            self._abort(stream.request_id)
        self._state = "stopped"
        self._post(lambda: None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, SAVE_AT_END + 10.0)

    @property
    def is_running(self) -> bool:
        """True while requests are taken."""
        return self._state == "running"

    def stats(self) -> EngineStats:
        """A snapshot of all counters and gauges."""
        return self.core.stats()

    # -- requests ----------------------------------------------------------------------------------

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> TokenStream:
        """Queue a request; iterate over the result for its deltas, `aclose` it to abort.

        Raises RequestError or QueueFullError if it cannot be taken, EngineStoppedError if none can.
        """
        if not self.is_running:
            raise EngineStoppedError(f"the engine is {self._state}: no new requests are taken")
        request = self._frontend.admit(
            prompt_token_ids,
            params,
            request_id=request_id,
            now=self.core.clock(),
            num_waiting=len(self.core.scheduler.waiting) + len(self._inbox),
            priority=priority,
            cache_salt=cache_salt,
        )
        stream = TokenStream(request_id, request.params.n, self._abort)
        self._streams[request_id] = stream
        self._post(lambda: self.core.add_request(request))
        return stream

    def _abort(self, request_id: str) -> None:
        if self._streams.pop(request_id, None) is not None:
            self._frontend.forget(request_id)
            self._post(lambda: self.core.abort_request(request_id))

    def _post(self, order: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(order)
            self._wake.notify()

    # -- the engine thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._state != "stopped" or self.core.has_work:
                self._obey()
                if self._stats_log is not None:
                    self._stats_log.observe(self.core.clock())
                outputs = self.core.step()
                if outputs:
                    self._to_loop(self._deliver, outputs)
            self.core.close(SAVE_AT_END)
        except (
            BaseException
        ) as error:  # a bug in the control plane: no request can be trusted to it
            log.exception("the engine has died")
            self._state = "dead"
            self._to_loop(self._fail_all, f"the engine has died: {type(error).__name__}: {error}")

    def _obey(self) -> None:
        """Carry out what was posted; while there is nothing to do, save blocks, then sleep."""
        with self._wake:
            if not self._inbox and not self.core.has_work:
                if self._check_when_idle:
                    self.core.check()
                while not self._inbox and self._state != "stopped" and not self.core.save():
                    self._wake.wait(SAVE_AGAIN if self.core.has_unsaved else None)
        while self._inbox:
            self._inbox.popleft()()

    def _to_loop(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: nobody listens any more
            self._state = "stopped"

    def _deliver(self, outputs: list[SeqOutput]) -> None:
        """In the event loop: detokenise and hand out."""
        for delta in self._frontend.deltas(outputs):
            if stopped_early(delta):
                self._post(partial(self.core.finish_choice, delta.request_id, delta.index))
            stream = self._streams.get(delta.request_id)
            if stream is not None:
                for shown in self._frontend.release(delta):
                    stream.put(shown)
        for output in outputs:
            if not self._frontend.is_open(output.request_id):
                self._streams.pop(output.request_id, None)

    def _fail_all(self, reason: str) -> None:
        for stream in list(self._streams.values()):
            stream.put(EngineStoppedError(reason))
            self._frontend.forget(stream.request_id)
        self._streams.clear()

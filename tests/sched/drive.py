"""Run requests through scheduler, KV manager and the toy tensor plane."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from octavo.config import SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.kv.contiguous import ContiguousKV
from octavo.kv.manager import KVManager
from octavo.request import Request, SamplingParams
from octavo.sched.outputs import SeqOutput
from octavo.sched.pace import Pace
from octavo.sched.scheduler import Scheduler
from tests.toy import ToyRunner


class FixedPace(Pace):
    """Plans of `num_steps` steps, however long they take."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps

    def observe(self, seconds: float) -> None:
        pass

    @property
    def num_steps(self) -> int:
        return self._num_steps


def make_core(
    num_blocks: int = 64,
    block_size: int = 4,
    max_model_len: int | None = None,
    prefix_caching: bool = True,
    vocab: int = 50,
    match_tokens: bool = False,
    num_host_blocks: int = 0,
    num_disk_blocks: int = 0,
    allocator: str = "paged",
    window: int | None = None,
    attention_weight: float = 0.0,
    steps: int = 1,
    **config: Any,
) -> EngineCore:
    ticks = count()
    limit = max_model_len or num_blocks * block_size
    if allocator == "paged":
        kv = KVManager(
            num_blocks, block_size, prefix_caching, match_tokens, num_host_blocks, num_disk_blocks
        )
    else:
        kv = ContiguousKV(num_blocks, block_size, allocator, limit)
    scheduler = Scheduler(SchedulerConfig(**config), kv, limit, window, attention_weight)
    if steps > 1:
        scheduler.pace = FixedPace(steps)
    return EngineCore(
        scheduler, ToyRunner(num_blocks, block_size, vocab, window), lambda: float(next(ticks))
    )


def make_request(
    request_id: str, prompt: list[int], max_tokens: int = 8, priority: int = 0, **params: Any
) -> Request:
    salt, eos = params.pop("cache_salt", None), params.pop("eos", ())
    arrival = params.pop("arrival", 0.0)
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(max_tokens=max_tokens, seed=0, **params),
        eos_token_ids=eos,
        priority=priority,
        arrival_time=arrival,
        cache_salt=salt,
    )


class Results:
    """What came out, per (request, choice)."""

    def __init__(self) -> None:
        self.tokens: dict[tuple[str, int], list[int]] = {}
        self.finished: dict[tuple[str, int], str] = {}
        self.order: list[str] = []
        self.outputs: list[SeqOutput] = []

    def add(self, outputs: Iterable[SeqOutput]) -> None:
        for out in outputs:
            self.outputs.append(out)
            key = (out.request_id, out.index)
            assert key not in self.finished, "output after the end"
            self.tokens.setdefault(key, []).extend(out.token_ids)
            if out.finish_reason is not None:
                self.finished[key] = out.finish_reason
                self.order.append(out.request_id)


def run(core: EngineCore, requests: Iterable[Request] = (), max_steps: int = 5000) -> Results:
    """All requests to their end, the books proved after every step."""
    results = Results()
    for request in requests:
        core.add_request(request)
    for _ in range(max_steps):
        if not core.has_work:
            core.check()
            return results
        results.add(core.step())
        core.check()
    raise AssertionError(f"not done after {max_steps} steps")

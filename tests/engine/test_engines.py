"""Both engines over the toy tensor plane: text, stop strings, aborts, draining, a core that dies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.core import EngineCore
from octavo.engine.limits import EngineLimits
from octavo.engine.outputs import TextDelta
from octavo.engine.stats import RequestTimes
from octavo.engine.sync import SyncEngine
from octavo.errors import EngineStoppedError, RequestError
from octavo.request import SamplingParams
from tests.engine.letters import ALPHABET, Letters
from tests.sched.drive import make_core
from tests.toy import generate_alone

LIMITS = EngineLimits(
    max_model_len=200, num_kv_blocks=64, block_size=4, max_num_seqs=8, vocab_size=100
)


def text_of(prompt: list[int], num: int, index: int = 0) -> str:
    return "".join(ALPHABET[t] for t in generate_alone(prompt, num, index))


def collect(engine: SyncEngine, prompts: list[list[int]], **params: Any) -> dict[Any, str]:
    texts: dict[Any, str] = {}
    asked = [SamplingParams(**params)] * len(prompts)
    for i, delta in engine.generate(prompts, asked):
        texts[i, delta.index] = texts.get((i, delta.index), "") + delta.text
    return texts


def sync_engine(core: EngineCore | None = None) -> SyncEngine:
    return SyncEngine(core or make_core(max_model_len=200), Letters(), LIMITS)  # type: ignore[arg-type]


def test_texts_of_all_choices() -> None:
    prompts = [[1, 2], [3], [4, 5, 6]]
    texts = collect(sync_engine(), prompts, max_tokens=9, n=2)
    assert texts == {
        (i, index): text_of(prompt, 9, index)
        for i, prompt in enumerate(prompts)
        for index in range(2)
    }


def test_a_stop_string_ends_one_choice_and_frees_its_blocks() -> None:
    core = make_core(max_model_len=200)
    whole = text_of([1, 2], 30)
    stop = whole[5:7]
    texts = collect(sync_engine(core), [[1, 2]], max_tokens=30, n=2, stop=[stop])
    assert texts[0, 0] == whole[: whole.index(stop)]
    other = text_of([1, 2], 30, 1)
    assert texts[0, 1] == (other[: other.index(stop)] if stop in other else other)
    assert core.scheduler.kv.pool.num_used == 0
    assert core.scheduler.stats.generation_tokens < 60


def test_min_tokens_puts_stop_strings_off() -> None:
    whole = text_of([1, 2], 30)
    texts = collect(sync_engine(), [[1, 2]], max_tokens=30, stop=[whole[2]], min_tokens=30)
    assert texts[0, 0][:29] == whole[:29]


def test_a_closed_generator_leaves_nothing() -> None:
    core = make_core(max_model_len=200)
    stream = sync_engine(core).generate([[1], [2]], [SamplingParams(max_tokens=50)] * 2)
    next(stream)
    stream.close()
    assert not core.has_work
    core.check()
    with pytest.raises(RequestError):
        list(sync_engine(core).generate([[1], []], [SamplingParams()] * 2))
    assert not core.has_work


def test_seeds_differ_where_none_is_given() -> None:
    core = make_core(max_model_len=200)
    list(sync_engine(core).generate([[1], [2]], [SamplingParams(max_tokens=1)] * 2))
    samples = [s for p in core.runner.plans for r in p.seqs for s in r.samples]  # type: ignore[attr-defined]
    assert len({s.params.seed for s in samples}) == 2


def with_engine(
    use: Callable[[AsyncEngine], Awaitable[None]], core: EngineCore | None = None
) -> EngineCore:
    core = core or make_core(max_model_len=200)

    async def main() -> None:
        engine = AsyncEngine(core, Letters(), LIMITS, check_when_idle=True)  # type: ignore[arg-type]
        await engine.start()
        await use(engine)
        await engine.drain(5.0)
        assert not engine.is_running

    asyncio.run(main())
    return core


async def read(engine: AsyncEngine, name: str, prompt: list[int], **params: Any) -> str:
    stream = engine.generate(prompt, SamplingParams(**params), request_id=name)
    return "".join([delta.text async for delta in stream if delta.index == 0])


def test_many_at_once_through_the_event_loop() -> None:
    async def use(engine: AsyncEngine) -> None:
        prompts = [[i, 2, 3] for i in range(20)]
        texts = await asyncio.gather(
            *(read(engine, f"r{i}", prompt, max_tokens=15) for i, prompt in enumerate(prompts))
        )
        assert texts == [text_of(prompt, 15) for prompt in prompts]
        assert engine.stats().num_requests_running == 0

    with_engine(use)


def test_stop_string_and_times() -> None:
    whole = text_of([1, 2], 40)
    times: list[RequestTimes] = []
    core = make_core(max_model_len=200)
    core.on_finished = times.append

    async def use(engine: AsyncEngine) -> None:
        got = await read(engine, "a", [1, 2], max_tokens=40, stop=whole[6:8])
        assert got == whole[: whole.index(whole[6:8])]

    with_engine(use, core)
    # The toy engine may have run to the end before the text is looked at.
    assert [t.finish_reason for t in times] in (["stop"], ["length"])
    assert times[0].num_prompt_tokens == 2
    assert times[0].first_token is not None


def test_hanging_up_aborts() -> None:
    times: list[RequestTimes] = []
    core = make_core(max_model_len=200)
    core.on_finished = times.append

    execute = core.runner.execute
    hung_up = threading.Event()

    def patient(plan: Any) -> Any:
        if len(core.runner.plans) > 20:  # type: ignore[attr-defined]
            assert hung_up.wait(20.0)  # the toy engine would be done before anybody hangs up
        return execute(plan)

    core.runner.execute = patient  # type: ignore[method-assign]

    async def use(engine: AsyncEngine) -> None:
        stream = engine.generate([1], SamplingParams(max_tokens=150), request_id="a")
        first = await anext(stream)
        assert isinstance(first, TextDelta)
        await stream.aclose()
        hung_up.set()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert await read(engine, "b", [2], max_tokens=3) == text_of([2], 3)

    with_engine(use, core)
    assert [(t.request_id, t.finish_reason) for t in times] == [("a", "abort"), ("b", "length")]
    assert core.scheduler.kv.pool.num_used == 0


def test_draining_finishes_what_runs_and_takes_no_more() -> None:
    async def use(engine: AsyncEngine) -> None:
        task = asyncio.ensure_future(read(engine, "a", [1], max_tokens=100))
        await asyncio.sleep(0)
        drained = asyncio.ensure_future(engine.drain(60000.0))
        await asyncio.sleep(0)
        with pytest.raises(EngineStoppedError, match="no new requests"):
            engine.generate([1], SamplingParams(), request_id="late")
        assert await task == text_of([1], 100)
        await drained

    with_engine(use)


def test_a_runner_that_raises_ends_its_requests_only() -> None:
    core = make_core(max_model_len=200)
    execute = core.runner.execute
    broken = [True]

    def fragile(plan: Any) -> Any:
        if broken.pop() if broken else False:
            raise MemoryError("no memory")
        return execute(plan)

    core.runner.execute = fragile  # type: ignore[method-assign]

    async def use(engine: AsyncEngine) -> None:
        stream = engine.generate([1], SamplingParams(max_tokens=3), request_id="a")
        deltas = [delta async for delta in stream]
        assert deltas[-1].finish_reason == "error"
        assert "MemoryError" in str(deltas[-1].error)
        assert await read(engine, "b", [2], max_tokens=3) == text_of([2], 3)

    with_engine(use, core)


def test_a_dead_core_is_told_to_everyone() -> None:
    core = make_core(max_model_len=200)

    def bug(now: float) -> Any:
        raise RuntimeError("a bug")

    core.scheduler.schedule = bug  # type: ignore[method-assign]

    async def use(engine: AsyncEngine) -> None:
        stream = engine.generate([1], SamplingParams(max_tokens=3), request_id="a")
        with pytest.raises(EngineStoppedError, match="a bug"):
            await anext(stream)
        assert not engine.is_running

    with_engine(use, core)


def test_an_interrupt_leaves_the_books_right() -> None:
    core = make_core(num_blocks=12, max_model_len=48)
    execute = core.runner.execute
    calls = [0]

    def interrupted(plan: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:  # forks are being copied: their sources are pinned
            assert plan.moves
            raise KeyboardInterrupt
        return execute(plan)

    core.runner.execute = interrupted  # type: ignore[method-assign]
    engine = sync_engine(core)
    for _ in range(20):
        calls[0] = 1
        with pytest.raises(KeyboardInterrupt):
            collect(engine, [[1, 2]], max_tokens=9, n=4)
        assert core.scheduler.kv.pool.num_used == 0
        core.check()
    calls[0] = 9
    assert collect(engine, [[1, 2]], max_tokens=9)[0, 0] == text_of([1, 2], 9)

"""best_of and beams through both engines: the best come, best first, when all is done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.core import EngineCore
from octavo.engine.limits import EngineLimits
from octavo.engine.outputs import TextDelta
from octavo.engine.sync import SyncEngine
from octavo.errors import RequestError
from octavo.request import SamplingParams, TokenLogprob
from octavo.sched.plan import ScheduledSeq, StepResult
from tests.engine.letters import ALPHABET, Letters
from tests.sched.drive import make_core
from tests.toy import ToyRunner, generate_alone

LIMITS = EngineLimits(
    max_model_len=200, num_kv_blocks=64, block_size=4, max_num_seqs=8, vocab_size=100
)
PROMPT = [1, 2, 3]


class Scored(ToyRunner):
    """Log-probabilities that differ: of a token, and of choices."""

    def _compute(self, run: ScheduledSeq, result: StepResult) -> None:
        super()._compute(run, result)
        for sample in run.samples:
            drawn = result.sampled[sample.seq_id]
            drawn[-1] = TokenLogprob(drawn[-1].token_id, logprob(drawn[-1].token_id))


def logprob(token_id: int) -> float:
    return -1.0 - token_id / 16


def scored_core() -> EngineCore:
    core = make_core(max_model_len=200)
    core.runner = Scored(64, 4)
    return core


def expected(num: int, n: int, stop: str = "") -> list[str]:
    """Texts of the best n of `num` choices."""
    found = []
    for index in range(num):
        ids = generate_alone(PROMPT, 12, index)
        text = "".join(ALPHABET[i] for i in ids)
        if stop and stop in text:
            ids = ids[: text.index(stop) + len(stop)]
            text = text[: text.index(stop)]
        found.append((-sum(map(logprob, ids)), index, text))
    return [text for _, _, text in sorted(found)[:n]]


def collect(core: EngineCore, **params: Any) -> list[TextDelta]:
    engine = SyncEngine(core, Letters(), LIMITS)  # type: ignore[arg-type]
    return [delta for _, delta in engine.generate([PROMPT], [SamplingParams(**params)])]


@pytest.mark.parametrize(("best_of", "n"), [(6, 1), (6, 4), (2, 2), (8, 7)])
def test_the_best_of_many(best_of: int, n: int) -> None:
    core = scored_core()
    deltas = collect(core, max_tokens=12, best_of=best_of, n=n, prompt_logprobs=0)
    if best_of > n:
        assert [d.index for d in deltas] == list(range(n))
        assert [d.prompt_logprobs is not None for d in deltas] == [True] + [False] * (n - 1)
        assert [d.text for d in deltas] == expected(best_of, n)
    assert core.scheduler.kv.pool.num_used == 0
    assert not core.has_work


def test_the_best_of_many_with_a_stop_string() -> None:
    stop = "".join(ALPHABET[i] for i in generate_alone(PROMPT, 12, 2)[4:6])
    deltas = collect(scored_core(), max_tokens=12, best_of=6, n=6 - 1, stop=[stop])
    assert [d.text for d in deltas] == expected(6, 5, stop)


def test_a_failed_choice_is_never_the_best() -> None:
    core = scored_core()
    execute = core.runner.execute

    def break_one(plan: Any) -> Any:
        result = execute(plan)
        if any(run.seq_id.endswith("#2") for run in plan.seqs) and plan.step_id > 4:
            result.failed[next(r.seq_id for r in plan.seqs if r.seq_id.endswith("#2"))] = "broken"
        return result

    core.runner.execute = break_one  # type: ignore[method-assign]
    deltas = collect(core, max_tokens=12, best_of=4, n=3)
    assert [d.finish_reason for d in deltas] == ["length"] * 3


async def _texts(core: EngineCore, params: SamplingParams) -> list[tuple[int, str]]:
    engine = AsyncEngine(core, Letters(), LIMITS)  # type: ignore[arg-type]
    await engine.start()
    stream = engine.generate(PROMPT, params, request_id="a")
    deltas = [(d.index, d.text) async for d in stream]
    await engine.drain(5)
    return deltas


def test_the_asynchronous_engine_gives_the_same() -> None:
    params = SamplingParams(max_tokens=12, best_of=6, n=2, seed=0)
    assert asyncio.run(_texts(scored_core(), params)) == list(enumerate(expected(6, 2)))
    params = SamplingParams(max_tokens=12, n=3, beam_width=5, use_beam_search=True)
    beams = [(d.index, d.text) for d in collect(make_core(max_model_len=200), **_fields(params))]
    assert [index for index, _ in beams] == [0, 1, 2]
    assert asyncio.run(_texts(make_core(max_model_len=200), params)) == beams


def _fields(params: SamplingParams) -> dict[str, Any]:
    return {"max_tokens": 12, "n": params.n, "beam_width": 5, "use_beam_search": True}


def test_what_no_engine_can_take() -> None:
    with pytest.raises(RequestError, match="best_of: expected at most 8"):
        collect(scored_core(), best_of=9)
    with pytest.raises(RequestError, match="beam_width: expected at most 8"):
        collect(scored_core(), beam_width=9, use_beam_search=True)
    small = EngineLimits(
        max_model_len=20, num_kv_blocks=8, block_size=4, max_num_seqs=8, vocab_size=11
    )
    beams = SamplingParams(n=6, use_beam_search=True, max_tokens=4)
    with pytest.raises(RequestError, match="at most half of the vocabulary's 11"):
        small.admit([1], beams, 0)
    contiguous = EngineLimits(
        max_model_len=20, num_kv_blocks=8, block_size=4, max_num_seqs=8, vocab_size=50,
        max_choices=1,
    )  # fmt: skip
    with pytest.raises(RequestError, match="--kv-allocator paged"):
        contiguous.admit([1], beams, 0)
    with pytest.raises(RequestError, match="best_of: expected at most 1"):
        contiguous.admit([1], SamplingParams(best_of=2, max_tokens=4), 0)

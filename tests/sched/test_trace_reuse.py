"""Reuse as computed by others, at full length: the control plane alone on whole traces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.request import Request, SamplingParams, TokenLogprob
from octavo.sched.plan import StepResult
from octavo.sched.scheduler import Scheduler
from tests.trace_reference import BLOCK, reference_hit_blocks, scaled_prompts


def hit_blocks(prompts: Iterable[list[int]], num_blocks: int) -> int:
    """Serve one request at a time for one token each; blocks found in the prefix cache."""
    kv = KVManager(num_blocks, BLOCK)
    scheduler = Scheduler(SchedulerConfig(), kv, max_model_len=num_blocks * BLOCK)
    params = SamplingParams(max_tokens=1, seed=0)
    hits = 0
    for i, prompt in enumerate(prompts):
        request = Request(
            request_id=str(i), prompt_token_ids=tuple(prompt), params=params, arrival_time=float(i)
        )
        scheduler.add(request)
        while scheduler.has_work:
            plan = scheduler.schedule(0.0)
            drawn = {run.seq_id: [TokenLogprob(7, 0.0)] for run in plan.seqs if run.samples}
            for output in scheduler.update(plan, StepResult(sampled=drawn)):
                assert output.finish_reason == "length"
                hits += output.num_cached_tokens // BLOCK
    kv.check()
    return hits


@pytest.mark.parametrize(
    ("trace", "limit", "num_blocks"),
    [
        ("mooncake_conversation_trace.jsonl", 1500, 1000),
        ("mooncake_conversation_trace.jsonl", 12031, 5859),
        ("mooncake_conversation_trace.jsonl", 12031, 100_000),
        ("mooncake_synthetic_trace.jsonl", 3993, 10_000),
    ],
)
def test_hit_blocks_equal_those_of_the_reference(
    trace: str, limit: int, num_blocks: int, shared_dir: Path, tmp_path: Path
) -> None:
    traces = shared_dir / "traces"
    expected = reference_hit_blocks(traces, trace, limit, num_blocks)
    assert expected > 1000
    assert hit_blocks(scaled_prompts(traces, trace, limit, tmp_path), num_blocks) == expected

"""The exactness contract in small: bench/exactness.py on fewer and shorter requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.exactness import COLD, Outcome, Way, differences, run, ways

NUM_REQUESTS = 12
MAX_PROMPT = 160
MAX_TOKENS = 64
FEW_BLOCKS = 20  # 320 tokens: the longest of these requests fits, a growing batch does not

Workload = tuple[list[list[int]], list[int]]


@pytest.fixture(scope="module")
def workload(shared_dir: Path) -> Workload:
    requests = json.loads((shared_dir / "bench" / "mixed64.json").read_text())["requests"]
    some = [r for r in requests if len(r["prompt"]) <= MAX_PROMPT][:NUM_REQUESTS]
    assert len(some) == NUM_REQUESTS
    return [r["prompt"] for r in some], [min(r["max_tokens"], MAX_TOKENS) for r in some]


@pytest.fixture(scope="module")
def cold(default_model_path: Path, workload: Workload) -> Outcome:
    return run(COLD, str(default_model_path), *workload)


def test_the_cold_run_is_what_was_asked_for(cold: Outcome, workload: Workload) -> None:
    assert [len(t) for t in cold.token_ids] == workload[1]
    assert [len(b) // 8 for b in cold.logprobs] == workload[1]
    assert (cold.num_preemptions, cold.num_cached_tokens) == (0, 0)
    assert len({t[:8] for t in cold.token_ids}) > NUM_REQUESTS // 2  # not one text for all


@pytest.mark.parametrize("way", ways(FEW_BLOCKS), ids=lambda w: w.name)
def test_same_tokens_and_logprobs(
    way: Way, cold: Outcome, default_model_path: Path, workload: Workload
) -> None:
    outcome = run(way, str(default_model_path), *workload)
    assert differences(cold, outcome) == (0, 0)
    if "num_kv_blocks" in way.settings:
        assert outcome.num_preemptions > 3  # it happened at all
    if way.passes > 1 and "num_kv_blocks" not in way.settings:
        assert outcome.num_cached_tokens > 500

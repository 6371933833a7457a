"""A prompt that leaves another's within a block goes on from there, and its tokens are those of a
cold run."""

from __future__ import annotations

import random

import pytest

from tests.sched.drive import make_core, make_request, run
from tests.toy import generate_alone

NUM_PAIRS, MOST_SHARED, BLOCK = 500, 100, 16


def prompt_pairs(seed: int) -> list[tuple[list[int], list[int]]]:
    """Pairs that share 0 to 100 tokens, and differ in the next one where both go on."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(NUM_PAIRS):
        shared = [rng.randrange(50) for _ in range(rng.randint(0, MOST_SHARED))]
        first = [*shared, 0, *(rng.randrange(50) for _ in range(rng.randrange(40)))]
        second = [*shared, 1, *(rng.randrange(50) for _ in range(rng.randrange(40)))]
        longer = rng.random()
        if shared and longer < 0.2:  # one is the beginning of the other
            first, second = (shared, second) if longer < 0.1 else (first, shared)
        pairs.append((first, second))
    return pairs


def num_common(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@pytest.mark.parametrize("match_tokens", [True, False])
def test_tokens_of_500_pairs_are_those_of_cold_runs(match_tokens: bool) -> None:
    copies = 0
    for first, second in prompt_pairs(seed=1):
        core = make_core(40, BLOCK, match_tokens=match_tokens, max_num_batched_tokens=64)
        run(core, [make_request("first", first, 4)])
        computed = [*first, *generate_alone(first, 3)]  # the last token drawn was not
        before = core.scheduler.stats.computed_tokens
        results = run(core, [make_request("second", second, 4)])
        assert results.tokens["second", 0] == generate_alone(second, 4)
        hit = min(num_common(computed, second), len(second) - 1)
        if not match_tokens:
            hit -= hit % BLOCK
        assert {output.num_cached_tokens for output in results.outputs} == {hit}
        assert core.scheduler.stats.computed_tokens - before == len(second) + 3 - hit
        copies += core.scheduler.kv.stats.num_cow_copies
    assert (copies > 200) == match_tokens

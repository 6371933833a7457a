"""A step's budget: tokens, dearer ones where they attend to many others."""

from __future__ import annotations

import random

import pytest

from octavo.sched.budget import StepBudget
from tests.sched.drive import make_core, make_request, run
from tests.toy import generate_alone


def spent(budget: StepBudget, start: int, num_tokens: int) -> int:
    before = budget.left
    budget.spend(start, num_tokens)
    return before - budget.left


def test_without_a_weight_tokens_are_counted() -> None:
    budget = StepBudget(100, 0.0, None)
    assert budget.most(5000, 64) == 64
    assert spent(budget, 5000, 64) == 64
    assert budget.left == 36


def test_a_token_after_many_others_is_dearer() -> None:
    weight = 1 / 3000
    assert StepBudget(512, weight, None).most(0, 512) == 474  # 474 + 474^2 / 6000
    assert StepBudget(512, weight, None).most(3000, 512) == 250
    assert spent(StepBudget(512, weight, None), 3000, 250) == 511
    assert StepBudget(512, weight, None).most(30_000, 512) == 46


def test_a_window_bounds_what_a_token_attends_to() -> None:
    weight = 1 / 3000
    assert StepBudget(512, weight, 3000).most(30_000, 512) == 250
    assert StepBudget(512, weight, 3000).most(1000, 512) == StepBudget(512, weight, None).most(
        1000, 512
    )


def test_one_token_costs_one_wherever_it_is() -> None:
    budget = StepBudget(2, 1.0, None)
    assert spent(budget, 10_000, 1) == 1
    assert budget.most(10_000, 1) == 1  # nobody stands still
    assert spent(budget, 10_000, 1) == 1


@pytest.mark.parametrize("weight", [1e-9, 1e-4, 0.03, 1.0, 50.0])
def test_what_is_allowed_is_never_more_than_the_budget(weight: float) -> None:
    rng = random.Random(1)
    for _ in range(2000):
        total, start = rng.randint(1, 4096), rng.randrange(20_000)
        budget = StepBudget(total, weight, rng.choice([None, 100]))
        limit = rng.randint(1, total)
        num = budget.most(start, limit)
        assert 1 <= num <= limit
        assert spent(budget, start, num) <= max(limit, 1)


def test_chunks_get_smaller_as_the_context_grows_and_others_get_on() -> None:
    core = make_core(200, max_num_batched_tokens=40, attention_weight=0.01)
    core.add_request(make_request("short", [3] * 5, 60))
    core.step()
    core.add_request(make_request("long", [i % 11 for i in range(300)], 4, arrival=1.0))
    sizes = []
    core.on_step = lambda plan, _: sizes.append({r.seq_id: len(r.token_ids) for r in plan.seqs})
    results = run(core)
    chunks = [step["long#0"] for step in sizes if step.get("long#0", 0) > 1]
    assert chunks[0] == 33
    assert chunks == sorted(chunks, reverse=True)
    assert chunks[-1] < 20
    assert sum(chunks) in (300, 299)
    assert all(step["short#0"] == 1 for step in sizes[: len(chunks)])
    assert results.tokens["long", 0] == generate_alone([i % 11 for i in range(300)], 4)

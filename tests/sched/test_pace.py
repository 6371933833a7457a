"""Plans of several decode steps: when there are any, and that they change no token."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.sched.pace import MOST_SECONDS, Pace
from tests.sched.drive import make_core, make_request, run
from tests.toy import ToyRunner, generate_alone


def pace(*seconds: float) -> Pace:
    found = Pace(4)
    for each in seconds:
        found.observe(each)
    return found


def test_as_many_steps_as_fit_and_no_more_than_allowed() -> None:
    assert pace().num_steps == 1  # nothing is known
    assert pace(MOST_SECONDS / 100).num_steps == 4
    assert pace(MOST_SECONDS / 2.5).num_steps == 2
    assert pace(MOST_SECONDS * 3).num_steps == 1


def test_it_follows_what_is_measured() -> None:
    assert pace(*[MOST_SECONDS / 100] * 3, *[MOST_SECONDS * 2] * 5).num_steps == 1
    assert pace(*[MOST_SECONDS * 2] * 3, *[MOST_SECONDS / 100] * 30).num_steps == 4


PROMPTS = {"a": [3, 1, 4, 1, 5], "b": [2, 7, 1, 8, 2, 8], "c": [1] * 9}


def sizes(core: Any) -> list[int]:
    assert isinstance(core.runner, ToyRunner)
    return [plan.num_steps for plan in core.runner.plans]


@pytest.mark.parametrize("steps", [2, 3, 4, 100])
def test_tokens_are_those_of_one_step_at_a_time(steps: int) -> None:
    core = make_core(steps=steps)
    requests = [make_request(name, prompt, 13) for name, prompt in PROMPTS.items()]
    results = run(core, requests)
    for name, prompt in PROMPTS.items():
        assert results.tokens[name, 0] == generate_alone(prompt, 13)
        assert results.finished[name, 0] == "length"
    assert max(sizes(core)) == min(steps, 12)
    assert sum(sizes(core)) == 13
    assert core.scheduler.stats.generation_tokens == 3 * 13
    assert core.scheduler.stats.computed_tokens == sum(map(len, PROMPTS.values())) + 3 * 12


def test_an_end_within_a_plan_is_the_end() -> None:
    tokens = generate_alone([1, 2, 3], 12)
    end = next(t for i, t in enumerate(tokens) if i >= 3 and t not in tokens[:i])
    core = make_core(steps=12)
    results = run(core, [make_request("x", [1, 2, 3], 12, eos=(end,))])
    assert results.tokens["x", 0] == tokens[: tokens.index(end) + 1]
    assert results.finished["x", 0] == "stop"
    assert core.scheduler.kv.pool.num_used == 0
    core.check()


def test_what_was_computed_is_found_again() -> None:
    core = make_core(steps=5, match_tokens=True)
    results = run(core, [make_request("x", [1, 2, 3], 12)])
    history = [1, 2, 3, *results.tokens["x", 0]]
    again = run(core, [make_request("y", [*history, 9], 4)])
    assert core.scheduler.stats.prefix_cache_hits == len(history) - 1
    assert again.tokens["y", 0] == generate_alone([*history, 9], 4)


def test_who_waits_is_not_kept_waiting() -> None:
    core = make_core(steps=5, max_num_seqs=1)
    run(core, [make_request("a", [1, 2], 10), make_request("b", [3, 4], 10, arrival=1.0)])
    assert sizes(core)[:10] == [1] * 10
    assert max(sizes(core)[10:]) == 5


def test_room_that_others_hold_is_not_taken_for_it() -> None:
    core = make_core(num_blocks=7, steps=9)  # of 4 tokens: both together need 8 at the end
    requests = [make_request("a", [1] * 4, 12), make_request("b", [2] * 4, 12, arrival=1.0)]
    results = run(core, requests)
    assert results.tokens["a", 0] == generate_alone([1] * 4, 12)
    assert results.tokens["b", 0] == generate_alone([2] * 4, 12)
    assert max(sizes(core)) > 1


@pytest.mark.parametrize(
    "params",
    [{"presence_penalty": 1.0}, {"min_tokens": 8, "eos": (77,)}, {"n": 2}, {"prompt_logprobs": 1}],
)
def test_what_needs_the_scheduler_between_tokens_gets_it(params: dict[str, Any]) -> None:
    core = make_core(steps=3)
    run(core, [make_request("x", [1, 2, 3], 8, **params)])
    expected = {"presence_penalty": 1, "min_tokens": 1, "n": 3, "prompt_logprobs": 3}
    assert max(sizes(core)) == expected[next(iter(params))]


def test_a_request_that_is_aborted_meanwhile_leaves_nothing() -> None:
    core = make_core(steps=4)
    core.add_request(make_request("x", [1, 2, 3], 30))
    core.add_request(make_request("y", [4, 5], 30))
    for _ in range(3):
        core.step()
    core.abort_request("x")
    results = run(core)
    assert core.scheduler.kv.pool.num_used == 0
    assert results.tokens["y", 0] == generate_alone([4, 5], 30)[9:]

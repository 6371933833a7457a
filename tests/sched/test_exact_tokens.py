"""Whatever the memory did, the tokens are those of the cold, lone run."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.sched.drive import make_core, make_request, run
from tests.toy import generate_alone

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 3),  # which stem: prompts share prefixes
        st.integers(1, 20),  # prompt tokens
        st.integers(1, 12),  # new tokens
        st.integers(1, 3),  # choices
        st.integers(-1, 1),  # priority
    ),
    min_size=1,
    max_size=9,
)
STEMS = [[(7 * s + i * i) % 11 for i in range(20)] for s in range(4)]


@settings(max_examples=250, deadline=None)
@given(
    REQUESTS,
    st.integers(9, 40),
    st.sampled_from([1, 3, 7, 100]),
    st.integers(3, 8),
    st.booleans(),
    st.sampled_from(["fcfs", "priority"]),
    st.booleans(),
    st.sampled_from([(0, 0), (6, 0), (0, 9), (4, 7), (60, 200)]),
    st.sampled_from(["blocks", "sequence", "recompute"]),
)
def test_tokens_do_not_depend_on_memory_or_schedule(
    asked: list[tuple[int, int, int, int, int]],
    num_blocks: int,
    budget: int,
    seats: int,
    caching: bool,
    policy: str,
    match_tokens: bool,
    tiers: tuple[int, int],
    preemption_mode: str,
) -> None:
    host, disk = tiers if caching else (0, 0)
    core = make_core(
        num_blocks,
        match_tokens=match_tokens,
        num_host_blocks=host,
        num_disk_blocks=disk,
        preemption_mode=preemption_mode,
        prefix_caching=caching,
        max_num_batched_tokens=budget,
        max_num_seqs=seats,
        scheduling_policy=policy,
    )
    requests = [
        make_request(f"r{i}", STEMS[stem][:length], new, n=n, priority=priority, arrival=float(i))
        for i, (stem, length, new, n, priority) in enumerate(asked)
    ]
    results = run(core, requests)
    for request in requests:
        prompt = list(request.prompt_token_ids)
        for index in range(request.params.n):
            expected = generate_alone(prompt, request.params.max_tokens or 0, index)
            assert results.tokens[request.request_id, index] == expected
            assert results.finished[request.request_id, index] == "length"
    assert core.scheduler.kv.pool.num_used == 0


def test_many_preemptions_change_nothing_and_only_missing_blocks_are_computed_again() -> None:
    core = make_core(num_blocks=20, max_num_batched_tokens=64)
    requests = [make_request(f"r{i}", [i, 1, 2, 3, 4, 5], 40, arrival=float(i)) for i in range(6)]
    results = run(core, requests)
    for i, request in enumerate(requests):
        expected = generate_alone(list(request.prompt_token_ids), 40)
        assert results.tokens[f"r{i}", 0] == expected
    stats = core.scheduler.stats
    assert stats.num_preemptions > 5
    needed = sum(6 + 40 - 1 for _ in requests)
    assert stats.computed_tokens <= needed + stats.num_preempted_tokens
    assert stats.num_preempted_blocks < 20 * stats.num_preemptions


@pytest.mark.parametrize("num", [1, 5])
def test_prompt_logprobs_come_once_and_whole_in_any_chunking(num: int) -> None:
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    whole = run(make_core(), [make_request("a", prompt, 2, prompt_logprobs=num)])
    expected = whole.outputs[0].prompt_logprobs
    assert expected is not None
    assert [entry and entry.token_id for entry in expected] == [None, *prompt[1:]]
    assert whole.outputs[1].prompt_logprobs is None
    core = make_core(num_blocks=8, max_num_batched_tokens=3)
    run(core, [make_request("warm", prompt, 1)])  # a hit may not swallow them
    rest = [make_request(f"r{i}", [i, i, i, i], 20, arrival=float(i)) for i in range(3)]
    asked = make_request("a", prompt, 2, prompt_logprobs=num, arrival=9.0)
    outputs = [o for o in run(core, [*rest, asked]).outputs if o.request_id == "a"]
    assert outputs[0].prompt_logprobs == expected


def test_the_prompt_alone() -> None:
    results = run(make_core(), [make_request("a", [1, 2, 3], 0, n=2, prompt_logprobs=0)])
    assert results.tokens == {("a", 0): [], ("a", 1): []}
    assert results.outputs[0].prompt_logprobs is not None


def test_a_sequence_that_needs_all_blocks_does_not_wait_for_one_more_to_copy_into() -> None:
    core = make_core(num_blocks=3, match_tokens=True)
    first = list(range(10))
    run(core, [make_request("a", first, 1)])
    second = [*first[:6], 30, 31, 32, 33]  # ends inside the second block of the first
    results = run(core, [make_request("b", second, 2)], max_steps=50)
    assert results.tokens["b", 0] == generate_alone(second, 2)

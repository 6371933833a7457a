"""Contiguous allocators: runs, holes, waiting, and the same tokens as ever."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from octavo.config import CacheConfig, EngineConfig, SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.limits import EngineLimits
from octavo.errors import ConfigError, RequestError
from octavo.kv.contiguous import RESERVATIONS, ContiguousKV, first_fit
from octavo.request import SamplingParams
from tests.sched.drive import Results, make_core, make_request, run
from tests.sched.test_exact_tokens import REQUESTS, STEMS
from tests.toy import generate_alone

ALLOCATORS = sorted(RESERVATIONS)


def kv_of(core: EngineCore) -> ContiguousKV:
    kv = core.scheduler.kv
    assert isinstance(kv, ContiguousKV)
    return kv


@settings(max_examples=250, deadline=None)
@given(
    REQUESTS,
    st.sampled_from(ALLOCATORS),
    st.integers(24, 60),
    st.sampled_from([1, 3, 7, 100]),
    st.integers(3, 8),
    st.sampled_from([None, "ngram"]),
    st.booleans(),
)
def test_tokens_do_not_depend_on_the_allocator(
    asked: list[tuple[int, int, int, int, int]],
    allocator: str,
    num_blocks: int,
    budget: int,
    seats: int,
    speculative: str | None,
    late: bool,
) -> None:
    """`late`: requests come out of order, so that one that runs has to yield."""
    core = make_core(
        num_blocks,
        max_model_len=32,
        allocator=allocator,
        max_num_batched_tokens=budget,
        max_num_seqs=seats,
        speculative=speculative,
    )
    requests = [
        make_request(f"r{i}", STEMS[stem][:length], new, n=n, arrival=-i if late else i)
        for i, (stem, length, new, n, _) in enumerate(asked)
    ]
    results = Results()
    for request in requests:
        core.add_request(request)
        if late:
            results.add(core.step())
            core.check()
    rest = run(core)
    results.add(rest.outputs)
    for request in requests:
        prompt = list(request.prompt_token_ids)
        for index in range(request.params.n):
            expected = generate_alone(prompt, request.params.max_tokens or 0, index)
            assert results.tokens[request.request_id, index] == expected
    assert kv_of(core).pool.num_used == 0
    assert late or core.scheduler.stats.num_preemptions == 0


def test_first_fit() -> None:
    taken = [range(2, 5), range(9, 12)]
    assert first_fit(taken, 2, 20) == range(0, 2)
    assert first_fit(taken, 3, 20) == range(5, 8)
    assert first_fit(taken, 5, 20) == range(12, 17)
    assert first_fit(taken, 9, 20) is None
    assert first_fit([], 20, 20) == range(20)


@pytest.mark.parametrize(
    ("allocator", "reserved"),
    [("contiguous-max", 25), ("contiguous-pow2", 16), ("contiguous-oracle", 10)],
)
def test_what_is_reserved(allocator: str, reserved: int) -> None:
    """Blocks of 4: a request of 37 tokens where 100 are possible."""
    core = make_core(50, max_model_len=100, allocator=allocator)
    core.add_request(make_request("a", list(range(30)), 7))
    core.step()
    kv = kv_of(core)
    assert kv.num_reserved("a#0") == kv.pool.num_used == reserved
    assert kv.block_ids("a#0") == tuple(range(8))  # its beginning: 30 tokens
    assert kv.num_tokens_in_use == 30
    run(core)
    assert kv.num_reserved("a#0") == kv.pool.num_used == kv.num_tokens_in_use == 0


def test_free_blocks_that_lie_apart_are_of_no_use() -> None:
    core = make_core(12, max_model_len=48, allocator="contiguous-oracle")
    for i, name in enumerate("abc"):  # 16 tokens each in the end: 4 blocks
        core.add_request(make_request(name, [i] * 4, 12, arrival=i))
    core.add_request(make_request("long", [9] * 18, 2, arrival=3))  # 5 blocks
    core.add_request(make_request("d", [5] * 4, 12, arrival=4))
    core.step()
    kv = kv_of(core)
    assert [kv.block_ids(f"{n}#0")[0] for n in "abc"] == [0, 4, 8]
    assert len(core.scheduler.running) == 3
    core.scheduler.finish(core.scheduler.sequences["a#0"])
    core.scheduler.finish(core.scheduler.sequences["c#0"])
    core.step()
    assert kv.num_free == 8
    assert kv.lacking("long#0", 18) == 1
    assert {s.seq_id for s in core.scheduler.running} == {"b#0"}  # d, too, waits its turn
    results = run(core)
    assert results.order == ["b", "long", "d"]
    assert core.scheduler.stats.num_preemptions == 0


def test_choices_have_runs_of_their_own() -> None:
    core = make_core(40, allocator="contiguous-oracle")
    core.add_request(make_request("a", [1, 2, 3, 4, 5], 11, n=3))
    core.step()
    kv = kv_of(core)
    tables = [kv.block_ids(f"a#{i}") for i in range(3)]
    assert len({block_id for table in tables for block_id in table}) == 6
    assert kv.pool.num_used == 12
    assert kv.stats.num_cow_copies == 4
    core.check()
    run(core)


def test_a_caller_s_bugs_are_refused() -> None:
    kv = ContiguousKV(8, 4, "contiguous-oracle", 32)
    kv.expect("a", 10, 1)
    kv.match("a", [1] * 10)
    with pytest.raises(ValueError, match="11 tokens computed without room"):
        kv.commit("a", [1] * 11, 11)
    assert kv.extend("a", 10) == [0, 1, 2]
    with pytest.raises(ValueError, match="13 tokens in a run for 12"):
        kv.extend("a", 13)
    with pytest.raises(ValueError, match="no run is reserved for the fork b"):
        kv.fork("a", "b")


@pytest.mark.parametrize(
    ("cache", "scheduler", "flag"),
    [
        ({"host_kv_bytes": 1000}, {}, "--host-kv-bytes"),
        ({"disk_kv_path": "x"}, {}, "--disk-kv-path"),
        ({"prefix_match": "block"}, {}, "--prefix-match block"),
        ({}, {"scheduling_policy": "priority"}, "--scheduling-policy priority"),
        ({}, {"preemption_mode": "recompute"}, "--preemption-mode recompute"),
    ],
)
def test_what_makes_no_sense_together(
    cache: dict[str, object], scheduler: dict[str, object], flag: str
) -> None:
    with pytest.raises(ConfigError, match=f"contiguous-pow2 .* leave {flag} away"):
        EngineConfig(
            cache=CacheConfig(kv_allocator="contiguous-pow2", **cache),  # type: ignore[arg-type]
            scheduler=SchedulerConfig(**scheduler),  # type: ignore[arg-type]
        )


def test_more_choices_than_runs_are_refused_at_the_door() -> None:
    limits = EngineLimits(
        max_model_len=64,
        num_kv_blocks=9,
        block_size=16,
        max_num_seqs=8,
        vocab_size=50,
        max_choices=2,
    )
    assert limits.admit([1], SamplingParams(max_tokens=1, n=2), 0).n == 2
    with pytest.raises(RequestError, match="n: expected at most 2, the contiguous runs"):
        limits.admit([1], SamplingParams(max_tokens=1, n=3), 0)

"""The KV manager's verbs, one at a time."""

from __future__ import annotations

import pytest

from octavo.kv.manager import KVManager
from octavo.kv.moves import Copy, MoveOutcome
from octavo.kv.pool import BlockPool
from octavo.kv.prefix import make_key, root_hash


def compute(kv: KVManager, seq_id: str, tokens: list[int]) -> None:
    assert kv.extend(seq_id, len(tokens)) is not None
    kv.settle(kv.take_moves(), MoveOutcome())
    kv.commit(seq_id, tokens, len(tokens))


def open_and_compute(kv: KVManager, seq_id: str, tokens: list[int], *extra: str) -> int:
    found = kv.match(seq_id, tokens, extra)
    compute(kv, seq_id, tokens)
    return found


def test_blocks_are_taken_on_demand() -> None:
    kv = KVManager(8)
    kv.match("a", list(range(40)))
    assert kv.pool.num_used == 0
    assert len(kv.extend("a", 17) or ()) == 2
    assert kv.extend("a", 32) == []
    assert len(kv.extend("a", 33) or ()) == 1


def test_not_now_changes_nothing() -> None:
    kv = KVManager(2)
    kv.match("a", list(range(100)))
    assert kv.lacking("a", 33) == 1
    assert kv.extend("a", 33) is None
    assert (kv.pool.num_used, kv.block_ids("a")) == (0, ())
    assert kv.extend("a", 32) is not None


def test_a_known_prefix_is_shared_and_one_token_is_always_computed() -> None:
    kv = KVManager(8)
    tokens = list(range(32))
    assert open_and_compute(kv, "a", tokens) == 0
    assert kv.match("b", tokens) == 16
    assert kv.match("c", [*tokens, 99]) == 32
    assert kv.block_ids("c") == kv.block_ids("a")
    assert kv.pool.num_used == 2


def test_salts_keep_tenants_apart() -> None:
    kv = KVManager(8)
    tokens = list(range(33))
    open_and_compute(kv, "a", tokens, "salt:one")
    assert kv.match("b", tokens, ("salt:two",)) == 0
    assert kv.match("c", tokens) == 0
    assert kv.match("d", tokens, ("salt:one",)) == 32


def test_extra_keys_cannot_be_confused() -> None:
    assert root_hash(["ab", "c"]) != root_hash(["a", "bc"])
    assert root_hash([]) != root_hash([""])
    assert make_key(bytes(32), [1, 2]).hash != make_key(bytes(32), [2, 1]).hash
    assert make_key(bytes(32), [1]).hash != make_key(b"\1" * 32, [1]).hash


def test_equal_prompts_computed_at_once_end_up_on_one_copy() -> None:
    kv = KVManager(8)
    tokens = list(range(40))
    kv.match("a", tokens)
    kv.match("b", tokens)  # nothing is computed yet: no hit
    compute(kv, "a", tokens)
    compute(kv, "b", tokens)
    assert kv.block_ids("a")[:2] == kv.block_ids("b")[:2]
    assert kv.pool.num_used == 4  # 2 shared, a tail each
    kv.check()


def test_fork_copies_only_when_somebody_writes() -> None:
    kv = KVManager(8)
    tokens = list(range(20))
    open_and_compute(kv, "a", tokens)
    kv.fork("a", "b")
    assert kv.pool.num_used == 2
    first, tail = kv.block_ids("a")
    compute(kv, "b", [*tokens, 1])
    assert kv.stats.num_cow_copies == 1
    assert kv.block_ids("b")[0] == first
    assert kv.block_ids("b")[1] != tail
    compute(kv, "a", [*tokens, 2])  # alone on its tail now: written in place
    assert kv.stats.num_cow_copies == 1
    assert kv.block_ids("a") == (first, tail)


def test_the_source_of_a_pending_copy_is_pinned() -> None:
    kv = KVManager(4)
    tokens = list(range(20))
    open_and_compute(kv, "a", tokens)
    kv.fork("a", "b")
    source = kv.block_ids("a")[1]
    kv.extend("b", 21)
    kv.free("a")
    moves = kv.take_moves()
    assert moves == (Copy(source, kv.block_ids("b")[1]),)
    assert kv.pool.ref_count(source) == 1
    kv.check()
    kv.settle(moves, MoveOutcome())
    assert kv.pool.ref_count(source) == 0
    kv.check()


def test_blocks_go_tail_first_and_heads_stay_longest() -> None:
    kv = KVManager(4)
    tokens = list(range(64))
    open_and_compute(kv, "a", tokens)
    kv.free("a")
    assert (kv.pool.num_used, kv.pool.num_cached) == (0, 4)
    other = list(range(100, 120))
    open_and_compute(kv, "b", other)  # 2 blocks: the spare, and the coldest: a's tail
    assert kv.pool.num_evictions == 1
    kv.free("b")
    assert kv.match("c", [*tokens, 0]) == 48


def test_giving_up_drops_as_many_blocks_as_needed_and_they_can_come_back() -> None:
    kv = KVManager(8)
    tokens = list(range(70))
    open_and_compute(kv, "a", tokens)
    assert kv.give_up("a", 2) == 2
    assert kv.num_computed("a") == 48
    assert len(kv.block_ids("a")) == 3
    assert kv.match("a", tokens) == 69  # all is still there, the tail too; one token is computed
    compute(kv, "a", tokens)
    kv.check()


def test_giving_up_shared_blocks_frees_nothing() -> None:
    kv = KVManager(8)
    tokens = list(range(32))
    open_and_compute(kv, "a", tokens)
    kv.fork("a", "b")
    assert kv.give_up("b", 1) == 0
    assert kv.block_ids("b") == ()
    assert kv.num_computed("a") == 32


def test_without_prefix_caching_nothing_is_found() -> None:
    kv = KVManager(8, enable_prefix_caching=False)
    tokens = list(range(33))
    open_and_compute(kv, "a", tokens)
    kv.free("a")
    assert kv.match("b", tokens) == 0
    assert kv.pool.num_cached == 0


def test_callers_bugs_are_exceptions() -> None:
    kv = KVManager(2)
    with pytest.raises(KeyError):
        kv.extend("nobody", 1)
    kv.match("a", [1])
    with pytest.raises(ValueError, match="without room"):
        kv.commit("a", [1], 1)
    with pytest.raises(ValueError, match="has a table already"):
        kv.fork("a", "a")
    pool = BlockPool(1)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.release(0)
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(0)


def test_check_finds_a_leak() -> None:
    kv = KVManager(4)
    open_and_compute(kv, "a", [1, 2, 3])
    kv.pool.acquire(kv.block_ids("a")[0])
    with pytest.raises(AssertionError, match="wrong count"):
        kv.check()

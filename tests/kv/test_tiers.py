"""Blocks going down and coming back, one situation at a time."""

from __future__ import annotations

from array import array

from octavo.kv.manager import KVManager
from octavo.kv.moves import MoveOutcome, Tier
from octavo.kv.prefix import make_key
from octavo.kv.tiers import SlotTier
from tests.toy import ToyMemory

BLOCK = 4
A, B, C = ([100 * i + t for t in range(40)] for i in (1, 2, 3))


class Bench:
    """A manager and the memory that carries out its moves."""

    def __init__(self, num_blocks: int, num_host: int = 0, num_disk: int = 0) -> None:
        self.kv = KVManager(num_blocks, BLOCK, True, True, num_host, num_disk)
        self.memory = ToyMemory(num_blocks, BLOCK, delay=0)

    def carry_out(self) -> None:
        moves = self.kv.take_moves()
        self.kv.settle(moves, self.memory.execute(moves))

    def compute(self, seq_id: str, tokens: list[int]) -> None:
        start = self.kv.match(seq_id, tokens)
        assert self.kv.extend(seq_id, len(tokens)) is not None
        self.carry_out()
        self.memory.write(self.kv.block_ids(seq_id), start, tuple(tokens[start:]))
        self.kv.commit(seq_id, tokens, len(tokens))
        self.kv.check()

    def serve(self, tokens: list[int]) -> None:
        self.compute("served", tokens)
        self.kv.free("served")

    def recall(self, seq_id: str, tokens: list[int]) -> int:
        """All that can be found, and read back once it is there."""
        self.kv.match(seq_id, tokens)
        num = self.kv.recall(seq_id, tokens, len(self.kv.find_below(seq_id, tokens)))
        for _ in range(3):
            self.carry_out()
        self.kv.check()
        assert not self.kv.is_in_flight(seq_id)
        assert self.memory.read(self.kv.block_ids(seq_id), num) == tokens[:num]
        return num


def test_the_coldest_go_down_and_come_back() -> None:
    for tiers in ((8, 0), (0, 8), (2, 8)):
        bench = Bench(4, *tiers)
        bench.serve(A[:16])
        bench.serve(B[:16])
        assert bench.kv.match("a", A[:17]) == 0
        assert bench.recall("a", A[:17]) == 16


def test_without_slower_tiers_what_is_evicted_is_gone() -> None:
    bench = Bench(4)
    bench.serve(A[:16])
    bench.serve(B[:16])
    assert bench.recall("a", A[:17]) == 0
    assert bench.kv.stats.num_dropped == 4


def test_a_recalled_block_is_not_written_down_again() -> None:
    bench = Bench(4, num_host=8)
    bench.serve(A[:16])
    bench.serve(B[:16])
    bench.recall("a", A[:17])
    bench.kv.free("a")
    before = bench.kv.stats.num_demoted_host
    bench.serve(B[:16])  # it is on the host as well
    bench.serve(A[:16])
    assert bench.kv.stats.num_demoted_host == before


def test_what_left_the_device_last_stays_below_longest() -> None:
    bench = Bench(2, num_host=3)
    bench.serve(A[:4])
    bench.serve(B[:8])  # A goes down first, but is asked for again
    bench.recall("a", A[:5])
    bench.kv.free("a")
    bench.serve(C[:8])
    held = [key.tokens for key in bench.kv.memory.host.all_keys()]
    assert held[-1] == array("i", A[:4]).tobytes()
    assert len(held) == 3


def test_recall_does_not_evict_what_it_will_want_next() -> None:
    bench = Bench(3, num_host=9)
    bench.serve(A[:12])
    bench.kv.match("a", A[:13])
    head, middle, tail = bench.kv.block_ids("a")
    bench.kv.free("a")
    for block_id in (head, middle):
        bench.kv.memory.swap_out(block_id)
    bench.serve(B[:8])
    assert bench.kv.pool.key_of(tail) is not None  # and it is the coldest
    assert bench.recall("a", A[:13]) == 12
    assert bench.kv.stats.num_promoted_host == 2
    assert bench.kv.block_ids("a")[2] == tail


def test_a_recalled_block_does_not_displace_itself() -> None:
    bench = Bench(2, num_host=2)
    bench.serve(A[:4])
    bench.serve(B[:8])
    bench.serve(C[:4])  # on the host: A, then the end of B
    coldest = bench.kv.memory.host.all_keys()[0]
    assert coldest.tokens == array("i", A[:4]).tobytes()
    bench.kv.match("other", C[8:])
    bench.kv.extend("other", 1)  # no block is empty now: bringing A sends another down
    assert bench.recall("part", [*A[:3], 7, 7]) == 3


def test_a_sequence_as_long_as_the_pool_is_never_short_of_the_block_it_borrowed() -> None:
    bench = Bench(4, num_host=8)
    bench.serve(A[:16])
    twin = A[:6] + B[:10]
    assert bench.kv.match("twin", twin) == 6
    assert bench.kv.lacking("twin", 16) == 0
    bench.compute("twin", twin)
    assert bench.kv.stats.num_cow_copies == 0
    bench.kv.free("twin")
    assert bench.recall("a", A[:17]) == 16  # what was taken over had gone down first


def test_with_room_to_spare_a_borrowed_block_is_copied() -> None:
    bench = Bench(8)
    bench.serve(A[:16])
    bench.compute("twin", A[:6] + B[:10])
    assert bench.kv.stats.num_cow_copies == 1
    assert bench.kv.match("a", A[:17]) == 16


def test_a_short_part_of_a_slow_block_is_computed() -> None:
    bench = Bench(4, num_disk=8)
    bench.serve(A[:16])
    bench.serve(B[:16])
    bench.kv.match("one", [*A[:1], 7, 7, 7])
    assert bench.kv.find_below("one", [*A[:1], 7, 7, 7]) == []
    assert bench.recall("two", [*A[:2], 7, 7, 7]) == 2


def test_a_table_with_holes_gives_up_all() -> None:
    bench = Bench(8)
    bench.compute("a", A[:24])
    bench.kv.drop_before("a", 13)
    assert bench.kv.give_up("a", 1) == 3
    assert bench.kv.num_computed("a") == 0
    assert bench.kv.match("a", A[:25]) == 24  # nothing was lost


def test_a_fork_given_up_leaves_the_tail_to_its_sibling() -> None:
    bench = Bench(8)
    bench.compute("a", A[:6])
    bench.kv.fork("a", "b")
    bench.kv.give_up("b", 9)
    bench.compute("a", A[:7])
    assert bench.kv.stats.num_cow_copies == 0
    bench.compute("b", A[:6])
    assert bench.memory.read(bench.kv.block_ids("b"), 6) == A[:6]


def test_a_tail_begun_with_contents_that_never_came_is_not_found() -> None:
    bench = Bench(2, num_host=4)
    bench.serve(A[:4])
    bench.serve(B[:8])
    tokens = [*A[:3], 7, 7]
    bench.kv.match("part", tokens)
    assert bench.kv.recall("part", tokens, 1) == 3
    bench.kv.give_up("part", 9)  # its tail is findable
    moves = bench.kv.take_moves()
    assert bench.kv.settle(moves, MoveOutcome.none_done(moves))
    bench.kv.check()
    assert bench.kv.match("part", tokens) == 0


def test_a_slot_is_not_emptied_by_old_news() -> None:
    tier = SlotTier(Tier.DISK, 2)
    first, second, third = (make_key(bytes(32), [i]) for i in range(3))
    old = tier.put(first)
    tier.put(second)
    tier.put(third)  # in the slot of the first
    new = tier.put(first)
    assert not tier.forget(old, first)  # a write that failed long ago
    assert tier.find(first.hash) == new != old
    tier.check()
    assert tier.forget(new, first)
    assert tier.find(first.hash) is None
    tier.check()


def test_what_the_disk_did_not_take_is_saved_later() -> None:
    bench = Bench(8, num_disk=8)
    bench.serve(A[:8])
    bench.memory.broken_slots = set(range(8))
    assert bench.kv.memory.save(9) == 2
    for _ in range(3):  # the memory reports a failed write some lists of moves later
        bench.carry_out()
    bench.kv.check()
    assert (bench.kv.stats.num_lost, bench.kv.memory.disk.num_used) == (2, 0)
    bench.memory.broken_slots = set()
    assert bench.kv.memory.save(9) == 2
    bench.carry_out()
    assert len(bench.memory.disk) == 2
    assert bench.kv.memory.num_unsaved == 0

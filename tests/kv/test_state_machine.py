"""The KV manager against a dumb model (a dict of token lists) and a toy memory that executes its moves.

Three tiers, forks, salts, moves that stay pending while other things happen, disk writes that fail,
slots that are damaged, restarts.
"""

from __future__ import annotations

from array import array

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.kv.manager import KVManager
from octavo.kv.moves import Copy
from tests.toy import ToyMemory

BLOCK = 4
NUM_BLOCKS, NUM_HOST, NUM_DISK = 8, 3, 5
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=30)
WHICH = st.integers(0, 10_000)
SALTS = ("", "a")


class KVMachine(RuleBasedStateMachine):
    """Tokens per sequence, as a plain dict; every block read must hold what the dict says."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @initialize(match_tokens=st.booleans(), tiers=st.sampled_from(["", "host", "disk", "both"]))
    def begin(self, match_tokens: bool, tiers: str) -> None:
        self.options = {
            "match_tokens": match_tokens,
            "num_host_blocks": NUM_HOST if tiers in ("host", "both") else 0,
            "num_disk_blocks": NUM_DISK if tiers in ("disk", "both") else 0,
        }
        self.memory = ToyMemory(NUM_BLOCKS, BLOCK)
        self.start()

    def start(self) -> None:
        self.kv = KVManager(NUM_BLOCKS, BLOCK, **self.options)
        self.tokens: dict[str, list[int]] = {}
        self.salts: dict[str, str] = {}

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def pick(self, which: int) -> str:
        return sorted(self.tokens)[which % len(self.tokens)]

    def carry_out(self) -> None:
        """Execute what was ordered, and compare all that is there with the model."""
        moves = self.kv.take_moves()
        outcome = self.memory.execute(moves)
        sources = [move.src for move in moves if isinstance(move, Copy)]
        assert all(self.kv.pool.ref_count(src) for src in sources), "a copy's source was given away"
        self.kv.settle(moves, outcome)
        for seq_id, tokens in self.tokens.items():
            table, num = self.kv.block_ids(seq_id), self.kv.num_computed(seq_id)
            if not any(map(self.kv.memory.is_in_flight, table)):
                assert self.memory.read(table, num) == tokens[:num], f"{seq_id} reads other tokens"
        for slot, (key, contents) in self.memory.disk.items():
            held = list(array("i", key.tokens))
            assert contents[: len(held)] == held, f"disk slot {slot} holds other tokens"

    def make_room(self, seq_id: str, end: int) -> bool:
        """`extend`, and what it promises; False if there was no room."""
        free, table = self.kv.num_free, self.kv.block_ids(seq_id)
        lack = self.kv.lacking(seq_id, end)
        added = self.kv.extend(seq_id, end)
        assert (added is None) == (lack > 0)
        if added is None:
            assert (self.kv.num_free, self.kv.block_ids(seq_id)) == (free, table)
        return added is not None

    def end_of(self, seq_id: str, num: int) -> int:
        return min(len(self.tokens[seq_id]), self.kv.num_computed(seq_id) + num)

    def waits(self, seq_id: str) -> bool:
        return any(map(self.kv.memory.is_in_flight, self.kv.block_ids(seq_id)))

    # -- what the scheduler does -------------------------------------------------------------------

    @rule(tokens=TOKENS, salt=st.sampled_from(SALTS))
    def open(self, tokens: list[int], salt: str) -> None:
        seq_id = self.name()
        self.tokens[seq_id], self.salts[seq_id] = tokens, salt
        found = self.kv.match(seq_id, tokens, (salt,))
        assert found < len(tokens)
        assert found % BLOCK == 0 or self.options["match_tokens"]

    @precondition(lambda self: self.tokens)
    @rule(whom=st.lists(st.tuples(WHICH, st.integers(1, 9)), min_size=1, max_size=3))
    def step(self, whom: list[tuple[int, int]]) -> None:
        """One step of several sequences: all moves, then all writes, then all commits."""
        ends: dict[str, int] = {}
        for which, num in whom:
            seq_id = self.pick(which)
            if seq_id in ends or self.waits(seq_id):
                continue
            end = self.end_of(seq_id, num)
            if self.make_room(seq_id, end):
                ends[seq_id] = end
        starts = {seq_id: self.kv.num_computed(seq_id) for seq_id in ends}
        self.carry_out()
        for seq_id, end in ends.items():
            start = starts[seq_id]
            tokens = tuple(self.tokens[seq_id][start:end])
            self.memory.write(self.kv.block_ids(seq_id), start, tokens)
        for seq_id, end in ends.items():
            self.kv.commit(seq_id, self.tokens[seq_id], end)

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH, tokens=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def append(self, which: int, tokens: list[int]) -> None:
        seq_id = self.pick(which)
        if self.kv.num_computed(seq_id) == len(self.tokens[seq_id]):
            self.tokens[seq_id] += tokens

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH)
    def fork(self, which: int) -> None:
        seq_id, child = self.pick(which), self.name()
        if self.waits(seq_id):
            return
        free = self.kv.num_free
        self.kv.fork(seq_id, child)
        self.tokens[child] = list(self.tokens[seq_id])
        self.salts[child] = self.salts[seq_id]
        assert self.kv.num_free == free

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH, num=st.integers(1, 4))
    def give_up(self, which: int, num: int) -> None:
        seq_id = self.pick(which)
        free = self.kv.num_free
        freed = self.kv.give_up(seq_id, num)
        assert self.kv.num_free == free + freed
        assert freed == num or not self.kv.block_ids(seq_id)

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH, how=st.sampled_from(["swap_out", "wipe"]))
    def vacate(self, which: int, how: str) -> None:
        seq_id, free = self.pick(which), self.kv.num_free
        assert getattr(self.kv, how)(seq_id) == self.kv.num_free - free
        assert self.kv.block_ids(seq_id) == ()

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH, num=st.integers(0, 9))
    def come_back(self, which: int, num: int) -> None:
        seq_id = self.pick(which)
        tokens, salt = self.tokens[seq_id], self.salts[seq_id]
        self.kv.match(seq_id, tokens, (salt,))
        before = self.kv.num_computed(seq_id)
        places = self.kv.find_below(seq_id, tokens)
        got = self.kv.recall(seq_id, tokens, min(num, len(places))) if places and num else before
        assert before <= got < max(2, len(tokens) + (before == len(tokens)))

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH)
    def promise(self, which: int) -> None:
        self.kv.promise(self.pick(which))

    @precondition(lambda self: self.tokens)
    @rule(which=WHICH, keep_tail=st.booleans())
    def free(self, which: int, keep_tail: bool) -> None:
        seq_id = self.pick(which)
        self.kv.free(seq_id, keep_tail)
        del self.tokens[seq_id], self.salts[seq_id]

    # -- what the tensor plane and the disk do -----------------------------------------------------

    @rule()
    def idle(self) -> None:
        self.carry_out()

    @rule(num=st.integers(1, 4))
    def save(self, num: int) -> None:
        self.kv.memory.save(num)

    @rule(delay=st.integers(0, 3))
    def disk_speed(self, delay: int) -> None:
        self.memory.delay = delay

    @rule(slots=st.sets(st.integers(0, NUM_DISK - 1), max_size=4))
    def disk_breaks(self, slots: set[int]) -> None:
        self.memory.broken_slots = slots

    @precondition(lambda self: self.memory.disk)
    @rule(which=WHICH)
    def slot_is_damaged(self, which: int) -> None:
        slots = sorted(self.memory.disk)
        del self.memory.disk[slots[which % len(slots)]]

    @rule()
    def restart(self) -> None:
        """All is gone but the disk; moves that were not carried out never happened."""
        disk = self.memory.disk
        self.memory = ToyMemory(NUM_BLOCKS, BLOCK, disk)
        self.start()
        if self.options["num_disk_blocks"]:
            self.kv.memory.restore((slot, key) for slot, (key, _) in sorted(disk.items()))

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        if hasattr(self, "kv"):
            self.kv.check()

    @invariant()
    def tokens_in_use_are_counted_right(self) -> None:
        if not hasattr(self, "kv"):
            return
        fill: dict[int, int] = {}
        for seq_id in self.tokens:
            left = self.kv.num_computed(seq_id)
            for block_id in self.kv.block_ids(seq_id):
                key = self.kv.pool.key_of(block_id)
                own = min(BLOCK, left) if key is None else key.num_tokens
                fill[block_id] = max(fill.get(block_id, 0), own)
                left -= min(BLOCK, left)
        pins = [b for b in range(NUM_BLOCKS + 1) if self.kv.memory.num_pins(b) and b not in fill]
        assert self.kv.num_tokens_in_use == sum(fill.values()) + BLOCK * len(pins)


KVMachine.TestCase.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
TestKV = KVMachine.TestCase

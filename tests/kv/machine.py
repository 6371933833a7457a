"""A hypothesis machine for the KV manager: verbs in any order, against a dict of token lists.

Three tiers so small that everything meets everything: forks, salts, windows, runs whose moves are
still to be carried out while other verbs go on, guesses that were wrong, slow and failing disks,
damaged slots, lists of moves that fail as a whole, restarts.

Every block that is read must hold what the dict says, with the tenant's tag on each token; what is
found is compared with a search through all keys there are. `SEEN` counts the situations that came
up, so that a test can say which ones did.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.kv.manager import KVManager
from octavo.kv.moves import Copy, MoveOutcome, Tier
from tests.kv.search import Search
from tests.toy import TAG, ToyMemory

BLOCK, LONGEST = 4, 30
NUM_BLOCKS = 8  # just enough for the longest
SALTS = ("", "a")
WRONG_GUESS = 9

_FIRST = [0, 1, 1, 0, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 2, 1, 1, 2, 0, 0, 2, 1, 0, 1, 0, 2, 2, 0, 1]
STEMS = (_FIRST, _FIRST[:10] + _FIRST[::-1], _FIRST[:17] + _FIRST)  # they part within blocks

TIERS = {"": (0, 0), "host": (3, 0), "disk": (0, 5), "both": (3, 5), "few": (1, 1), "many": (9, 20)}
WINDOWS = (None, None, 3, 7)
MODES = ("give_up", "give_up", "swap_out", "wipe")
VERBS = (
    ["open"] * 4 + ["go"] * 6 + ["run"] * 4 + ["step"] * 7 + ["come_back"] * 3
    + ["preempt"] * 2 + ["free"] * 2 + ["fork"] + ["trouble"] * 2
)  # fmt: skip
TROUBLES = (
    ["save"] * 2 + ["slow"] * 3 + ["full"] * 2 + ["damaged"] * 4 + ["fails"] + ["restart"]
)  # fmt: skip

SEEN: Counter[str] = Counter()


class KVMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.kv: KVManager | None = None  # type: ignore[assignment]

    @initialize(
        match_tokens=st.booleans(),
        tiers=st.sampled_from(sorted(TIERS)),
        window=st.sampled_from(WINDOWS),
        mode=st.sampled_from(MODES),
    )
    def begin(self, match_tokens: bool, tiers: str, window: int | None, mode: str) -> None:
        num_host, num_disk = TIERS[tiers]
        self.options = {
            "match_tokens": match_tokens,
            "num_host_blocks": num_host,
            "num_disk_blocks": num_disk,
        }
        self.window, self.mode = window, mode
        self.memory = ToyMemory(NUM_BLOCKS, BLOCK)
        self.start()
        for i in range(3):  # warm: all tiers are in use
            self.open(which=i + 1, num=LONGEST - 1)
            self.run(which=0, num=LONGEST * 2)
            self.step()
            self.free(which=0, num=1)

    def start(self) -> None:
        self.kv: KVManager = KVManager(NUM_BLOCKS, BLOCK, **self.options)
        self.tokens: dict[str, list[int]] = {}
        self.salts: dict[str, str] = {}
        self.planned: dict[str, tuple[int, int, int]] = {}  # start, end, and end of the guesses
        self.makers: set[str] = set()

    # -- the model's side --------------------------------------------------------------------------

    def pick(self, which: int) -> str | None:
        """A sequence that is not about to run: as in a schedule, nobody touches those."""
        idle = sorted(set(self.tokens) - set(self.planned))
        return idle[which % len(idle)] if idle else None

    def tag(self, seq_id: str) -> int:
        return TAG * SALTS.index(self.salts[seq_id])

    def read(self, seq_id: str, first: int, end: int) -> None:
        """What is in the blocks for positions first .. end must be the sequence's tokens."""
        tag = self.tag(seq_id)
        held = self.memory.read(self.kv.block_ids(seq_id), end)[first:]
        assert held == [t + tag for t in self.tokens[seq_id][first:end]], f"{seq_id} reads others"

    def read_all(self) -> None:
        for seq_id in self.tokens:
            if not self.kv.is_in_flight(seq_id):
                first = self.kv.tables[seq_id].num_dropped * BLOCK
                self.read(seq_id, first, self.kv.num_computed(seq_id))
        for slot, (key, contents) in self.memory.disk.items():
            held = [t % TAG for t in contents[: key.num_tokens] if t is not None]
            assert held == list(array("i", key.tokens)), f"disk slot {slot} holds other tokens"

    def search(self, seq_id: str, *tiers: Tier) -> Search:
        return Search(self.kv, self.tokens[seq_id], self.salts[seq_id], *tiers)

    # -- what the scheduler does -------------------------------------------------------------------

    @rule(verb=st.sampled_from(VERBS), which=st.integers(0, 1000), num=st.integers(1, LONGEST))
    def do(self, verb: str, which: int, num: int) -> None:
        """One verb. A single rule: hypothesis would not draw many in the proportions wanted."""
        SEEN[verb] += 1
        getattr(self, verb)(which, num)

    def open(self, which: int, num: int) -> None:
        if len(self.tokens) > 5:
            return self.free(which, num)
        self.count += 1
        seq_id = f"s{self.count}"
        self.salts[seq_id] = SALTS[which % 4 == 0]
        self.tokens[seq_id] = STEMS[which % 3][:num]
        self.match(seq_id, may_find_parts=self.options["match_tokens"])

    def match(self, seq_id: str, may_find_parts: bool) -> int:
        kv, table = self.kv, self.kv.tables.get(seq_id)
        had = kv.num_computed(seq_id) if table else 0
        is_own_tail = table is not None and not table.is_aligned(BLOCK)
        is_own_tail = is_own_tail and kv.pool.key_of(table.block_ids[-1]) is None
        found = kv.match(seq_id, self.tokens[seq_id], (self.salts[seq_id],))
        assert found < max(len(self.tokens[seq_id]), had + 1)
        if is_own_tail or kv.tables[seq_id].num_dropped or not kv.num_free:
            return found
        here = self.search(seq_id, Tier.DEVICE)
        num_full, num_part = here.num_full, here.longest_part(Tier.DEVICE)
        assert found // BLOCK >= num_full, "there is more on the device"
        if found // BLOCK == num_full and found % BLOCK and had < found:
            assert may_find_parts
            assert found % BLOCK <= num_part
            SEEN["part of a block found"] += 1
        if may_find_parts and kv.num_free and num_part > here.longest_part(Tier.HOST, Tier.DISK):
            assert found >= num_full * BLOCK + num_part, "a better part is there"
        return found

    def run(self, which: int, num: int) -> None:
        """Make room for a run; its moves, and what it computes, come with the next `step`."""
        seq_id = self.pick(which)
        if seq_id is None or self.kv.is_in_flight(seq_id):
            return
        tokens, start = self.tokens[seq_id], self.kv.num_computed(seq_id)
        if start == len(tokens) and start < LONGEST:
            tokens.append(num % 3)
        end = min(len(tokens), start + 1 + num // 2)
        num_guesses = min(num % 5, LONGEST - end)
        most = end + num_guesses if end == len(tokens) else end
        if end > start and self.make_room(seq_id, most):
            self.planned[seq_id] = (start, end, most)
            self.makers.add(seq_id)
            self.kv.promise(seq_id)

    def make_room(self, seq_id: str, end: int) -> bool:
        """`extend`, and what it promises; others are robbed where it lacks blocks."""
        kv = self.kv
        if kv.lacking(seq_id, end) and not kv.has_room(seq_id, end):
            free, table = kv.num_free, kv.block_ids(seq_id)
            assert kv.extend(seq_id, end) is None
            assert (kv.num_free, kv.block_ids(seq_id)) == (free, table)
            for victim in sorted(set(self.tokens) - set(self.planned) - {seq_id}):
                if not kv.lacking(seq_id, end):
                    break
                self.rob(victim, kv.lacking(seq_id, end), self.mode)
        lack, has_room = kv.lacking(seq_id, end), kv.has_room(seq_id, end)
        position, table = kv.num_computed(seq_id) // BLOCK, kv.block_ids(seq_id)
        key = kv.pool.key_of(table[position]) if position < len(table) else None
        left_over = key.num_tokens - kv.num_computed(seq_id) % BLOCK if key else 0
        is_shared = position < len(table) and any(
            table[position] in self.real_blocks(other) for other in self.tokens if other != seq_id
        )
        added = kv.extend(seq_id, end)
        assert (added is None) == (lack > 0)
        if added is None:
            assert len(self.tokens) > 1 or self.pinned(), "alone, and the pool is not enough"
            return False
        assert not has_room or (not added and kv.block_ids(seq_id) == table)
        is_copied = position < len(table) and kv.block_ids(seq_id)[position] != table[position]
        assert not is_shared or is_copied, "it would write into another's block"
        assert key is None or is_copied or kv.pool.key_of(table[position]) is None
        if is_copied:
            SEEN["copied: borrowed" if key else "copied: forked tail"] += 1
        elif key:
            SEEN["taken over" if not left_over else "taken over, more was of use"] += 1
        return True

    def pinned(self) -> bool:
        return any(self.kv.memory.pins[b] for b in range(NUM_BLOCKS + 1))

    def step(self, *_: int) -> None:
        """All moves, then what was planned is computed and committed."""
        self.carry_out()
        for seq_id, (start, end, most) in self.planned.items():
            if self.window is not None:
                self.read(seq_id, max(0, start + 1 - self.window), start)
            else:
                self.read(seq_id, 0, start)
            guesses = (WRONG_GUESS,) * (most - end)
            tokens = tuple(
                t + self.tag(seq_id) for t in (*self.tokens[seq_id][start:end], *guesses)
            )
            self.memory.write(self.kv.block_ids(seq_id), start, tokens)
        for seq_id, (_, end, most) in self.planned.items():
            self.commit(seq_id, end, most)
        self.planned.clear()
        self.read_all()

    def commit(self, seq_id: str, end: int, most: int) -> None:
        kv, before = self.kv, self.kv.block_ids(seq_id)
        kv.commit(seq_id, self.tokens[seq_id], end)
        after = kv.block_ids(seq_id)
        assert not kv.is_in_flight(seq_id), "what it computed itself is not there any more"
        SEEN["room for guesses given back"] += len(after) < len(before)
        SEEN["an equal block taken at commit"] += after != before[: len(after)]
        SEEN["equal block in flight at commit"] += kv.tables[seq_id].num_indexed < end // BLOCK
        assert len(after) == kv.blocks_for(end)
        if self.window is not None:
            kv.drop_before(seq_id, end - self.window + 1)
            SEEN["dropped out of the window"] += kv.tables[seq_id].num_dropped > 0

    def fork(self, which: int, num: int) -> None:
        seq_id = self.pick(which)
        if seq_id is None or self.kv.is_in_flight(seq_id):
            return
        self.count += 1
        free, child = self.kv.num_free, f"s{self.count}"
        self.kv.fork(seq_id, child)
        self.tokens[child] = list(self.tokens[seq_id])
        self.salts[child] = self.salts[seq_id]
        assert self.kv.num_free == free

    def preempt(self, which: int, num: int) -> None:
        seq_id, mode = self.pick(which), ("give_up", "swap_out", "wipe")[num % 3]
        if seq_id is not None:
            self.rob(seq_id, 1 + num % 4, mode)

    def rob(self, seq_id: str, num: int, mode: str) -> None:
        kv, free = self.kv, self.kv.num_free
        self.withdraw(seq_id)
        SEEN["robbed while in flight"] += kv.is_in_flight(seq_id)
        had_holes = kv.tables[seq_id].num_dropped > 0
        freed = kv.give_up(seq_id, num) if mode == "give_up" else getattr(kv, mode)(seq_id)
        assert kv.num_free == free + freed
        assert freed >= num or not kv.block_ids(seq_id)
        if mode != "give_up" or had_holes:
            assert not kv.block_ids(seq_id)
            SEEN["holes given up"] += had_holes
        else:
            assert freed <= num
            SEEN["robbed in part"] += bool(kv.block_ids(seq_id))

    def withdraw(self, seq_id: str) -> None:
        self.kv.withdraw(seq_id)
        self.makers.discard(seq_id)

    def come_back(self, which: int, num: int) -> None:
        seq_id = self.pick(which)
        if seq_id is None:
            return
        kv, tokens = self.kv, self.tokens[seq_id]
        may_find_parts = self.options["match_tokens"] or kv.tables[seq_id].has_given_up
        before = self.match(seq_id, may_find_parts)
        assert not kv.awaits(seq_id, len(tokens)) or self.makers - {seq_id}, "nobody is computing"
        places = kv.find_below(seq_id, tokens)
        if not places:
            return
        is_full = not kv.num_free  # what is cached cannot be held then
        assert is_full or any(place.tier is not Tier.DEVICE for place in places)
        num_full = self.search(seq_id, *Tier).num_full
        evicted, free = kv.pool.num_evictions, kv.num_free
        got = kv.recall(seq_id, tokens, num)
        assert before <= got < len(tokens)
        SEEN["recalled"] += got > before
        SEEN["eviction during recall"] += kv.pool.num_evictions > evicted
        if kv.pool.num_evictions == evicted and free >= num and not kv.tables[seq_id].num_dropped:
            # As much as was asked for, up to what there is.
            assert got // BLOCK >= min(num_full, before // BLOCK + num)

    def go(self, which: int, num: int) -> None:
        self.come_back(which, num)
        self.run(which, num)

    def free(self, which: int, num: int) -> None:
        seq_id = self.pick(which)
        if seq_id is not None:
            SEEN["freed while in flight"] += self.kv.is_in_flight(seq_id)
            self.forget(seq_id, keep_tail=num % 4 > 0)

    def forget(self, seq_id: str, keep_tail: bool) -> None:
        self.kv.free(seq_id, keep_tail)
        self.makers.discard(seq_id)
        del self.tokens[seq_id], self.salts[seq_id]

    # -- what the tensor plane and the disk do -----------------------------------------------------

    def carry_out(self) -> None:
        moves = self.kv.take_moves()
        outcome = self.memory.execute(moves)
        sources = [move.src for move in moves if isinstance(move, Copy)]
        assert all(self.kv.pool.ref_count(src) for src in sources), "a copy's source was given away"
        SEEN["arrived from the disk"] += len(outcome.arrived)
        SEEN["missing on the disk"] += len(outcome.missing)
        SEEN["disk write lost"] += len(outcome.lost)
        before = {seq_id: self.kv.block_ids(seq_id) for seq_id in self.tokens}
        is_short = self.kv.settle(moves, outcome)
        is_cut = any(self.kv.block_ids(seq_id) != table for seq_id, table in before.items())
        assert is_short or not is_cut
        SEEN["a table cut: contents did not come"] += is_cut

    def trouble(self, which: int, num: int) -> None:
        kind = TROUBLES[which % len(TROUBLES)]
        if kind == "save":
            SEEN["saved"] += self.kv.memory.save(num)
        elif kind == "slow":
            self.memory.delay = num % 4
        elif kind == "full":
            self.memory.broken_slots = set(range(num % 5))
        elif kind == "damaged" and self.memory.disk:
            slots = sorted(self.memory.disk)
            del self.memory.disk[slots[num % len(slots)]]
        elif kind == "fails":
            self.moves_fail()
        elif kind == "restart":
            self.restart()

    def moves_fail(self) -> None:
        """Nothing of a list is carried out; those that were to run end."""
        moves = self.kv.take_moves()
        for seq_id in self.planned:
            self.forget(seq_id, keep_tail=False)
        self.planned.clear()
        self.kv.settle(moves, MoveOutcome.none_done(moves))
        SEEN["a list of moves failed"] += bool(moves)
        self.read_all()

    def restart(self) -> None:
        """All is gone but the disk; moves that were not carried out never happened."""
        disk = self.memory.disk
        self.memory = ToyMemory(NUM_BLOCKS, BLOCK, disk)
        self.start()
        if self.options["num_disk_blocks"]:
            entries = [(slot, key) for slot, (key, _) in sorted(disk.items())]
            num = self.kv.memory.restore(entries)
            assert num == len({key.hash for _, key in entries})
            SEEN["restarted with blocks"] += num > 0

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        if self.kv is None:
            return
        self.kv.check()
        holders = Counter(b for s in self.tokens for b in set(self.real_blocks(s)))
        for block_id, num in holders.items():
            tags = {self.salts[s] for s in self.tokens if block_id in self.real_blocks(s)}
            assert len(tags) == 1, "a block of two tenants"
            SEEN["in flight and shared"] += num > 1 and self.kv.memory.is_in_flight(block_id)

    def real_blocks(self, seq_id: str) -> tuple[int, ...]:
        return self.kv.block_ids(seq_id)[self.kv.tables[seq_id].num_dropped :]

    @invariant()
    def tokens_in_use_are_counted_right(self) -> None:
        if self.kv is None:
            return
        fill: dict[int, int] = {}
        for seq_id in self.tokens:
            left = self.kv.num_computed(seq_id) - BLOCK * self.kv.tables[seq_id].num_dropped
            for block_id in self.real_blocks(seq_id):
                key = self.kv.pool.key_of(block_id)
                own = min(BLOCK, left) if key is None else key.num_tokens
                fill[block_id] = max(fill.get(block_id, 0), own)
                left -= min(BLOCK, left)
        pins = [b for b in range(NUM_BLOCKS + 1) if self.kv.memory.pins[b] and b not in fill]
        assert self.kv.num_tokens_in_use == sum(fill.values()) + BLOCK * len(pins)


def walk(seed: int, num_verbs: int) -> KVMachine:
    """The same machine without hypothesis: more verbs per second, each as often as VERBS says."""
    rng, machine = random.Random(seed), KVMachine()
    machine.begin(
        rng.random() < 0.7, rng.choice(sorted(TIERS)), rng.choice(WINDOWS), rng.choice(MODES)
    )
    for _ in range(num_verbs):
        machine.do(rng.choice(VERBS), rng.randrange(1000), rng.randint(1, LONGEST))
        machine.books_are_right()
        machine.tokens_in_use_are_counted_right()
    return machine

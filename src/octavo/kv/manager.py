"""KV memory as virtual memory: block tables over one shared pool. Start reading here.

A sequence's keys and values live in blocks of `block_size` tokens; its block table lists them in
order.

    tokens     | 0 .. 15 | 16 .. 31 | 32 .. 47 | 48 ..
    table  A   |    7    |    2     |    9     |  4        4: unfinished tail, A's own
    table  B   |    7    |    2     |    9     |  5        7 2 9: shared, ref_count 2
                  key ◄──── key  ◄──── key                 full and computed: indexed

The life of a sequence, as the scheduler drives it:

    match     take the blocks of its longest prefix on the device    (a hit: nothing to compute)
    recall    bring back what slower tiers hold of the rest          (a hit: nothing to compute)
    promise   say which blocks it is going to compute                (others wait for them)
    extend    make room for the next tokens                          (None: not now)
    commit    they are computed: full blocks become findable
    fork      a second sequence over the same blocks                 (copied when one writes)
    give_up   drop blocks off the tail because others need them      (preemption)
    free      drop all

Dropping is one mechanism: references go, tail first; what is indexed stays findable, ages in the
pool and moves to slower tiers (memory.py). A preempted sequence that comes back, the next turn of a
chat, and a stranger with the same system prompt are the same `match` and `recall`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.kv import books
from octavo.kv.cow import CopyOnWrite
from octavo.kv.lookup import PrefixLookup
from octavo.kv.memory import TieredMemory
from octavo.kv.moves import Move, MoveOutcome, Place
from octavo.kv.prefix import root_hash
from octavo.kv.promises import Promises
from octavo.kv.table import NO_BLOCK, Table


class KVManager:
    """Block tables over tiered memory.

    Verbs return ids, counts or None ("not now"); exceptions mean a caller's bug. With
    `match_tokens` a prefix may end anywhere; without it hits are whole blocks (a preempted
    sequence finds its own unfinished block in either case).
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        enable_prefix_caching: bool = True,
        match_tokens: bool = False,
        num_host_blocks: int = 0,
        num_disk_blocks: int = 0,
    ) -> None:
        if (num_host_blocks or num_disk_blocks) and not enable_prefix_caching:
            raise ValueError("slower tiers find blocks by their prefix: enable prefix caching")
        self.memory = TieredMemory(num_blocks, num_host_blocks, num_disk_blocks)
        self.pool = self.memory.pool
        self.stats = self.memory.stats
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.match_tokens = match_tokens
        self.tables: dict[str, Table] = {}
        self.promises = Promises()
        self._lookup = PrefixLookup(self.memory, self.promises, block_size, match_tokens)
        self._cow = CopyOnWrite(self.memory, block_size)

    # -- what a sequence holds ---------------------------------------------------------------------

    def holds(self, seq_id: str) -> bool:
        """True between match/fork and free."""
        return seq_id in self.tables

    def block_ids(self, seq_id: str) -> tuple[int, ...]:
        """The block table, the same object until it changes; entries before the window are void."""
        return self.tables[seq_id].view

    def num_computed(self, seq_id: str) -> int:
        """Leading tokens whose keys and values are in the table's blocks."""
        return self.tables[seq_id].num_committed

    @property
    def num_free(self) -> int:
        """Blocks that can be had."""
        return self.pool.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def expect(self, seq_id: str, num_tokens: int, num_seqs: int) -> None:
        """It will come to `num_tokens` tokens at most, in `num_seqs` forks: of no use here."""

    # -- finding a prefix --------------------------------------------------------------------------

    def match(
        self,
        seq_id: str,
        token_ids: Sequence[int],
        extra_keys: Sequence[str] = (),
        max_tokens: int | None = None,
    ) -> int:
        """Extend the table with device blocks that already hold the next tokens.

        Returns how many tokens are computed in all. Opens the table of a new sequence; for one that
        gave up blocks it goes on from what is left. At least one token stays to be computed (its
        logits are wanted); `max_tokens` can lower the limit. `token_ids` is kept, not copied: it
        may grow, but not change.
        """
        table = self.tables.get(seq_id)
        if table is None:
            table = self.tables[seq_id] = Table(root_hash(extra_keys))
        if self._cow.is_borrowed(table):  # not used since the last call: there may be better by now
            self._let_go(table)
        table.token_ids = token_ids
        # An unfinished tail of its own is computed further: no block could take its place.
        if self.enable_prefix_caching and table.is_aligned(self.block_size):
            self._lookup.match(table, token_ids, _limit(token_ids, max_tokens))
        return table.num_committed

    def find_below(
        self, seq_id: str, token_ids: Sequence[int], max_tokens: int | None = None
    ) -> list[Place]:
        """Where the blocks lie that continue the table, up to the first that no tier has.

        Empty if `match` has found all there is. The last one may be a block that agrees in part.
        """
        return self._lookup.find_below(
            self.tables[seq_id], token_ids, _limit(token_ids, max_tokens)
        )

    def recall(
        self,
        seq_id: str,
        token_ids: Sequence[int],
        num_blocks: int,
        max_tokens: int | None = None,
    ) -> int:
        """Bring up to `num_blocks` blocks of `find_below` into the table.

        Returns how many tokens are computed in all, once the moves are done: until then it
        `is_in_flight`. Stops early where no device block can be had.
        """
        table, limit = self.tables[seq_id], _limit(token_ids, max_tokens)
        self._lookup.recall(table, token_ids, limit, num_blocks)
        return table.num_committed

    # -- the verbs ---------------------------------------------------------------------------------

    def has_room(self, seq_id: str, num_tokens: int) -> bool:
        """True if `extend` would have nothing to do, as in most steps that compute one token."""
        table = self.tables[seq_id]
        if num_tokens > len(table.block_ids) * self.block_size:
            return False
        return self._cow.is_own(table)

    def num_new(self, seq_id: str, num_tokens: int) -> int:
        """Blocks that `extend` would add to the table."""
        return max(0, self.blocks_for(num_tokens) - len(self.tables[seq_id].block_ids))

    def lacking(self, seq_id: str, num_tokens: int) -> int:
        """Blocks that must come free before `extend` can succeed; 0 if it will."""
        num_new = self.num_new(seq_id, num_tokens)
        return max(
            0, num_new + self._cow.must_copy(self.tables[seq_id], num_new) - self.pool.num_free
        )

    def extend(self, seq_id: str, num_tokens: int) -> list[int] | None:
        """Make room for the first `num_tokens` tokens; what will be written becomes its own.

        Writing begins at `num_computed`. Returns the blocks that were added, or None, with nothing
        changed, if the pool has not enough.
        """
        table, num_new = self.tables[seq_id], self.num_new(seq_id, num_tokens)
        must_copy = self._cow.must_copy(table, num_new)
        taken = self.pool.take(num_new + must_copy)
        if taken is None:
            return None
        if must_copy:
            self._cow.copy(table, taken.pop())
        else:
            self._cow.take_over(table)
        table.add(*taken)
        return taken

    def commit(self, seq_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """The first `num_computed` of `token_ids` are in the table's blocks: index the full ones.

        Room beyond them (for guesses that were wrong) goes back. If an equal block exists (two
        users sent the same prompt at once), the table takes that one and lets its own go: equal
        hashes mean equal bytes.
        """
        table = self.tables[seq_id]
        if num_computed > len(table.block_ids) * self.block_size:
            raise ValueError(f"{seq_id}: {num_computed} tokens computed without room for them")
        table.num_committed, table.token_ids = num_computed, token_ids
        num_blocks = self.blocks_for(num_computed)
        while len(table.block_ids) > num_blocks:
            self._let_go(table, keep_tail=False)
        num_full = num_computed // self.block_size
        if self.enable_prefix_caching and num_full > table.num_indexed:
            self._lookup.index(table, num_full)

    def fork(self, seq_id: str, child_id: str) -> None:
        """A second sequence over the same blocks.

        Whoever first writes into a shared one copies it.
        """
        if child_id in self.tables:
            raise ValueError(f"{child_id} has a table already")
        table = self.tables[seq_id]
        block_ids = table.block_ids[: self.blocks_for(table.num_committed)]
        for block_id in block_ids[table.num_dropped :]:
            self.pool.acquire(block_id)
        self.tables[child_id] = Table(
            table.root,
            block_ids,
            list(table.chain),
            table.num_indexed,
            table.num_committed,
            table.num_dropped,
            table.token_ids,
        )

    def drop_before(self, seq_id: str, num_tokens: int) -> None:
        """The first `num_tokens` tokens are never read again (attention window): let them go."""
        table = self.tables[seq_id]
        end = min(num_tokens, table.num_committed) // self.block_size
        for i in range(table.num_dropped, end):
            self.pool.release(table.block_ids[i])
            table.replace(i, NO_BLOCK)
        table.num_dropped = max(table.num_dropped, end)

    # -- letting go --------------------------------------------------------------------------------

    def give_up(self, seq_id: str, num_blocks: int) -> int:
        """Drop blocks off the tail until `num_blocks` can be had by others or none is left.

        Returns how many came free; dropping a block that others hold too frees nothing. What they
        held stays findable, the unfinished tail too.
        """
        table, num_freed = self.tables[seq_id], 0
        table.has_given_up = True
        # Without its tail a table with holes is of no use: what comes next would read the holes.
        while table.block_ids and (num_freed < num_blocks or table.num_dropped):
            num_freed += self._let_go(table)
        return num_freed

    def swap_out(self, seq_id: str) -> int:
        """Give up all blocks, and move those that nobody else holds to the tier below now."""
        return self._vacate(seq_id, self.memory.swap_out, keep_tail=True)

    def wipe(self, seq_id: str) -> int:
        """Give up all blocks, and forget those that nobody else holds."""
        return self._vacate(seq_id, self.memory.discard, keep_tail=False)

    def free(self, seq_id: str, keep_tail: bool = True) -> None:
        """Drop the table, tail first: the head of a prefix outlives its tail in the pool.

        `keep_tail`: the unfinished block may be of use to others who match tokens.
        """
        self.withdraw(seq_id)
        table = self.tables[seq_id]
        while table.block_ids:
            self._let_go(table, keep_tail and self.match_tokens)
        del self.tables[seq_id]

    # -- promises: nobody computes what another is computing ---------------------------------------

    def promise(self, seq_id: str) -> None:
        """The sequence is going to compute the rest of the blocks that it was matched for."""
        table = self.tables[seq_id]
        rest = (key.hash for key in table.chain[table.num_committed // self.block_size :])
        missing = [block_hash for block_hash in rest if self.pool.find(block_hash) is None]
        self.stats.num_misses += len(missing)
        self.promises.make(seq_id, missing)

    def is_in_flight(self, seq_id: str) -> bool:
        """True while blocks of the sequence are on their way from the disk: it must not run."""
        table = self.tables.get(seq_id)
        if table is None or not self.memory.num_in_flight:
            return False
        return any(map(self.memory.is_in_flight, table.block_ids[table.num_dropped :]))

    def awaits(self, seq_id: str, num_tokens: int) -> bool:
        """True while another has promised the next block that a sequence of `num_tokens` lacks."""
        table = self.tables[seq_id]
        i = table.num_committed // self.block_size
        if i >= min(len(table.chain), (num_tokens - 1) // self.block_size):
            return False
        return self.promises.is_by_other(table.chain[i].hash, seq_id)

    def withdraw(self, seq_id: str) -> None:
        """Take promises back: the sequence has stopped computing."""
        table = self.tables[seq_id]
        self.promises.withdraw(seq_id, (key.hash for key in table.chain[table.num_indexed :]))

    # -- moves -------------------------------------------------------------------------------------

    def take_moves(self) -> tuple[Move, ...]:
        """The moves ordered since the last call; what they read stays pinned until `settle`."""
        return self.memory.take_moves()

    def settle(self, moves: Sequence[Move], outcome: MoveOutcome) -> bool:
        """What the tensor plane made of `moves` and of earlier ones.

        True if promised contents did not arrive: tables that counted on them are shorter now.
        """
        hollow = self.memory.settle(moves, outcome)
        for block_id in hollow:
            for table in self.tables.values():
                while block_id in table.block_ids[table.num_dropped :]:
                    self._let_go(table, keep_tail=False)
        return bool(hollow)

    # -- the books ---------------------------------------------------------------------------------

    @property
    def num_tokens_in_use(self) -> int:
        """Tokens that the blocks in use hold, each shared block counted once."""
        return books.num_tokens_in_use(self)

    def check(self) -> None:
        """Prove that tables, pins, reference counts and index agree; AssertionError if not."""
        books.check(self)

    # -- private -----------------------------------------------------------------------------------

    def _let_go(self, table: Table, keep_tail: bool = True) -> bool:
        """Drop the last block; True if it came free. `keep_tail`: index it if it is unfinished."""
        position = len(table.block_ids) - 1
        if position < table.num_dropped:
            table.cut(position, self.block_size)
            return False
        block_id = table.block_ids[position]
        if keep_tail and self._is_own_tail(table, position):
            self.pool.index(block_id, table.tail_key(self.block_size))
        table.cut(position, self.block_size)
        return self.pool.release(block_id)

    def _is_own_tail(self, table: Table, position: int) -> bool:
        num_full, num_tokens = divmod(table.num_committed, self.block_size)
        block_id = table.block_ids[position]
        return (
            self.enable_prefix_caching
            and position == num_full
            and num_tokens > 0
            and self.pool.ref_count(block_id) == 1
            and self.pool.key_of(block_id) is None
        )

    def _vacate(self, seq_id: str, each: Callable[[int], None], keep_tail: bool) -> int:
        table, num_freed = self.tables[seq_id], 0
        table.has_given_up = True
        while table.block_ids:
            block_id = table.block_ids[-1]
            if self._let_go(table, keep_tail):
                num_freed += 1
                if self.pool.key_of(block_id) is not None:
                    each(block_id)
        return num_freed


def _limit(token_ids: Sequence[int], max_tokens: int | None) -> int:
    """Most tokens that a prefix hit may cover."""
    longest = len(token_ids) - 1
    return longest if max_tokens is None else min(max_tokens, longest)

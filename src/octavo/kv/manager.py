"""KV memory as virtual memory: block tables over one shared pool. Start reading here.

A sequence's keys and values live in blocks of `block_size` tokens; its block table lists them in
order.

    tokens     | 0 .. 15 | 16 .. 31 | 32 .. 47 | 48 ..
    table  A   |    7    |    2     |    9     |  4        4: partial tail, A's own
    table  B   |    7    |    2     |    9     |  5        7 2 9: shared, ref_count 2
                 hash ◄──── hash ◄──── hash                 full and computed: indexed

The life of a sequence, as the scheduler drives it:

    match     take the blocks of its longest known prefix        (a hit: nothing to compute)
    promise   say which blocks it is going to compute            (who awaits one need not do it too)
    extend    make room for the next tokens                      (None: not now)
    commit    they are computed: full blocks become findable
    fork      a second sequence over the same blocks             (copied when one of them writes)
    give_up   drop blocks off the tail because others need them  (preemption)
    free      drop all

Dropping is one mechanism: references go, tail first; what is indexed stays findable and ages in the
pool until its block is taken for something else. A preempted sequence that comes back, the next
turn of a chat, and a stranger with the same system prompt are the same `match`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.kv.moves import Copy, Move
from octavo.kv.pool import BlockPool
from octavo.kv.prefix import encode_extra_keys, extend_chain


@dataclass(slots=True)
class _Table:
    """A sequence's blocks. `hashes` may run ahead of `block_ids`: known, not held.

    positions:  0 ............ num_committed ....... len(block_ids) * block_size
                computed       room, being computed
    """

    extra: bytes
    block_ids: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    num_indexed: int = 0  # leading blocks that are findable
    num_committed: int = 0  # leading tokens that are computed
    view: tuple[int, ...] | None = None  # block_ids for readers; None: to be made again


class KVManager:
    """Block tables over one pool.

    Verbs return ids, counts or None ("not now"); exceptions mean a caller's bug.
    """

    def __init__(
        self, num_blocks: int, block_size: int = 16, enable_prefix_caching: bool = True
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.num_cow_copies = 0
        self._tables: dict[str, _Table] = {}
        self._moves: list[Move] = []
        self._pins: list[int] = []
        self._promised: dict[bytes, str] = {}  # hash -> the sequence that is computing it

    # -- what a sequence holds ---------------------------------------------------------------------

    def holds(self, seq_id: str) -> bool:
        """True between match/fork and free."""
        return seq_id in self._tables

    def block_ids(self, seq_id: str) -> tuple[int, ...]:
        """The block table: the same object until the table changes."""
        table = self._tables[seq_id]
        if table.view is None:
            table.view = tuple(table.block_ids)
        return table.view

    def num_computed(self, seq_id: str) -> int:
        """Leading tokens whose keys and values are in the table's blocks."""
        return self._tables[seq_id].num_committed

    @property
    def num_free(self) -> int:
        """Blocks that can be had."""
        return self.pool.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    # -- the verbs ---------------------------------------------------------------------------------

    def match(
        self,
        seq_id: str,
        token_ids: Sequence[int],
        extra_keys: Sequence[str] = (),
        max_tokens: int | None = None,
    ) -> int:
        """Extend the table with blocks that already hold the next tokens.

        Returns how many tokens are computed in all.

        Opens the table of a new sequence; for one that gave up blocks it goes on from what is left.
        At least one token stays to be computed (its logits are wanted); `max_tokens` can lower the
        limit.
        """
        table = self._tables.get(seq_id)
        if table is None:
            table = self._tables[seq_id] = _Table(encode_extra_keys(extra_keys))
        limit = len(token_ids) - 1 if max_tokens is None else min(max_tokens, len(token_ids) - 1)
        # A partial tail is computed further, not matched: there is no block to be had in its place.
        is_full = table.num_committed == len(table.block_ids) * self.block_size
        if self.enable_prefix_caching and is_full:
            self._take_known(table, token_ids, limit // self.block_size)
        return table.num_committed

    def has_room(self, seq_id: str, num_tokens: int) -> bool:
        """True if `extend` would have nothing to do, as in most steps that compute one token."""
        table = self._tables[seq_id]
        if num_tokens > len(table.block_ids) * self.block_size:
            return False
        return self._shared_tail(table) is None

    def lacking(self, seq_id: str, num_tokens: int) -> int:
        """Blocks that must come free before `extend` can succeed; 0 if it will."""
        return max(0, self._num_needed(self._tables[seq_id], num_tokens) - self.pool.num_free)

    def extend(self, seq_id: str, num_tokens: int) -> list[int] | None:
        """Make room for the first `num_tokens` tokens; what will be written becomes its own.

        Writing begins at `num_computed`. Returns the blocks that were added, or None, with nothing
        changed, if the pool has not enough.
        """
        table = self._tables[seq_id]
        taken = self.pool.take(self._num_needed(table, num_tokens))
        if taken is None:
            return None
        shared_tail = self._shared_tail(table)
        if shared_tail is not None:
            self._copy_on_write(table, shared_tail, taken.pop())
        table.block_ids += taken
        table.view = None
        return taken

    def commit(self, seq_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """The first `num_computed` of `token_ids` are in the table's blocks: index the full ones.

        Room beyond them (for guesses that were wrong) goes back. If an equal block exists (two
        users sent the same prompt at once), the table takes that one and lets its own go: equal
        hashes mean equal bytes.
        """
        table = self._tables[seq_id]
        if num_computed > len(table.block_ids) * self.block_size:
            raise ValueError(f"{seq_id}: {num_computed} tokens computed without room for them")
        table.num_committed = num_computed
        num_blocks = self.blocks_for(num_computed)
        while len(table.block_ids) > num_blocks:
            self.pool.release(table.block_ids.pop())
            table.view = None
        num_full = num_computed // self.block_size
        if self.enable_prefix_caching and num_full > table.num_indexed:
            self._index(table, token_ids, num_full)

    def fork(self, seq_id: str, child_id: str) -> None:
        """A second sequence over the same blocks.

        Whoever first writes into a shared one copies it.
        """
        if child_id in self._tables:
            raise ValueError(f"{child_id} has a table already")
        table = self._tables[seq_id]
        block_ids = table.block_ids[: self.blocks_for(table.num_committed)]
        for block_id in block_ids:
            self.pool.acquire(block_id)
        self._tables[child_id] = _Table(
            table.extra,
            block_ids,
            list(table.hashes),
            table.num_indexed,
            table.num_committed,
        )

    def give_up(self, seq_id: str, num_blocks: int) -> int:
        """Drop blocks off the tail until `num_blocks` can be had by others or none is left.

        Returns how many came free; dropping a block that others hold too frees nothing.
        """
        table = self._tables[seq_id]
        num_freed = 0
        while table.block_ids and num_freed < num_blocks:
            num_freed += self.pool.release(table.block_ids.pop())
        table.view = None
        num_left = len(table.block_ids)
        table.num_committed = min(table.num_committed, num_left * self.block_size)
        table.num_indexed = min(table.num_indexed, num_left)
        return num_freed

    def free(self, seq_id: str) -> None:
        """Drop the table, tail first: the head of a prefix outlives its tail in the pool."""
        self.withdraw(seq_id)
        table = self._tables.pop(seq_id)
        while table.block_ids:
            self.pool.release(table.block_ids.pop())

    # -- promises: nobody computes what another is computing ---------------------------------------
    #
    # A sequence that starts to run promises the full blocks that it lacks; one that awaits such a
    # block stays in the queue and finds it once it is committed. Nobody waits for ever: a promise
    # ends with commit, or is withdrawn when its maker stops running.

    def promise(self, seq_id: str) -> None:
        """The sequence is going to compute the rest of the blocks that it was matched for."""
        table = self._tables[seq_id]
        for block_hash in table.hashes[len(table.block_ids) :]:
            self._promised.setdefault(block_hash, seq_id)

    def awaits(self, seq_id: str, num_tokens: int) -> bool:
        """True if the next block that a sequence of `num_tokens` lacks is promised by another."""
        table, i = self._tables[seq_id], len(self._tables[seq_id].block_ids)
        if i >= min(len(table.hashes), (num_tokens - 1) // self.block_size):
            return False
        return self._promised.get(table.hashes[i], seq_id) != seq_id

    def withdraw(self, seq_id: str) -> None:
        """Take promises back: the sequence has stopped computing."""
        table = self._tables[seq_id]
        for block_hash in table.hashes[table.num_indexed :]:
            if self._promised.get(block_hash) == seq_id:
                del self._promised[block_hash]

    # -- moves -------------------------------------------------------------------------------------

    def take_moves(self) -> tuple[Move, ...]:
        """The moves ordered since the last call.

        Their source blocks stay pinned until `moves_done`.
        """
        moves, self._moves = tuple(self._moves), []
        return moves

    def moves_done(self, moves: Sequence[Move]) -> None:
        """The tensor plane has executed `moves`."""
        for move in moves:
            self._pins.remove(move.src)
            self.pool.release(move.src)

    # -- private -----------------------------------------------------------------------------------

    def _take_known(self, table: _Table, token_ids: Sequence[int], max_blocks: int) -> None:
        extend_chain(table.hashes, token_ids, max_blocks, self.block_size, table.extra)
        for block_hash in table.hashes[len(table.block_ids) : max_blocks]:
            block_id = self.pool.find(block_hash)
            # A cached block counts as free until it is acquired; the last one may not be to be had.
            if block_id is None or (self.pool.ref_count(block_id) == 0 and not self.num_free):
                break
            self.pool.acquire(block_id)
            table.block_ids.append(block_id)
        table.view = None
        table.num_indexed = len(table.block_ids)
        table.num_committed = len(table.block_ids) * self.block_size

    def _index(self, table: _Table, token_ids: Sequence[int], num_full: int) -> None:
        """Make the first `num_full` blocks findable; those before `num_indexed` are already."""
        extend_chain(table.hashes, token_ids, num_full, self.block_size, table.extra)
        for i in range(table.num_indexed, num_full):
            own = table.block_ids[i]
            known = self.pool.index(own, table.hashes[i])
            self._promised.pop(table.hashes[i], None)
            if known != own:
                self.pool.release(own)
                self.pool.acquire(known)
                table.block_ids[i] = known
                table.view = None
        table.num_indexed = num_full

    def _num_needed(self, table: _Table, num_tokens: int) -> int:
        num_new = max(0, self.blocks_for(num_tokens) - len(table.block_ids))
        return num_new + (self._shared_tail(table) is not None)

    def _shared_tail(self, table: _Table) -> int | None:
        """Position in the table of a block that will be written and belongs to others as well."""
        i = table.num_committed // self.block_size
        if i >= len(table.block_ids):
            return None
        # A pin is no owner: moves are executed before the step's writes, its copy is safe by then.
        block_id = table.block_ids[i]
        num_owners = self.pool.ref_count(block_id)
        if self._pins:
            num_owners -= self._pins.count(block_id)
        return i if num_owners > 1 else None

    def _copy_on_write(self, table: _Table, position: int, block_id: int) -> None:
        shared = table.block_ids[position]
        self._moves.append(Copy(shared, block_id))
        self._pins.append(shared)  # the table's reference becomes the move's until it is executed
        table.block_ids[position] = block_id
        table.view = None
        self.num_cow_copies += 1

    # -- the books ---------------------------------------------------------------------------------

    @property
    def num_tokens_in_use(self) -> int:
        """Tokens that the blocks in use hold, each shared block counted once."""
        room: dict[int, int] = {}  # last blocks may be shared by forks: the fullest view counts
        for table in self._tables.values():
            if table.block_ids:
                empty = len(table.block_ids) * self.block_size - table.num_committed
                tail = table.block_ids[-1]
                room[tail] = min(room.get(tail, empty), empty)
        return self.pool.num_used * self.block_size - sum(room.values())

    def check(self) -> None:
        """Prove that tables, pins, reference counts and index agree.

        AssertionError says what does not.
        """
        self.pool.check()
        held = Counter(b for table in self._tables.values() for b in table.block_ids)
        held.update(self._pins)
        for block_id in range(self.pool.num_blocks + 1):
            assert self.pool.ref_count(block_id) == held[block_id], f"block {block_id}: wrong count"
        for seq_id, table in self._tables.items():
            assert table.view in (None, tuple(table.block_ids)), f"{seq_id}: an old view"
            assert len(set(table.block_ids)) == len(table.block_ids), f"{seq_id}: a block twice"
            assert table.num_committed <= len(table.block_ids) * self.block_size, (
                f"{seq_id}: no room"
            )
            for i in range(table.num_indexed):
                block_hash = self.pool.hash_of(table.block_ids[i])
                assert block_hash == table.hashes[i], f"{seq_id}: block {i} is another"
        assert set(self._promised.values()) <= set(self._tables), "a promise of nobody"
        assert not set(self._promised) & self.pool.hashes(), "a promise that is kept already"
        sources = [move.src for move in self._moves]
        assert not Counter(sources) - Counter(self._pins), (
            "a pending move reads a block without a pin"
        )

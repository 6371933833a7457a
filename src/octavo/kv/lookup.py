"""Finding a prefix, and making one findable.

    tokens      | 0 .. 15 | 16 .. 31 | 32 .. 37, then other ones
    found       |  key 0  |  key 1   | the block behind key 1 that begins with the most of them

Whole blocks are found by hash along the chain of keys. What comes after them is looked for among
the blocks that follow the last one (prefix.py, `Children`): one that agrees in part is borrowed if
it lies on the device (cow.py), and brought into a block of the sequence's own if it lies below.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv.memory import TieredMemory
from octavo.kv.moves import Place, Tier
from octavo.kv.prefix import Key, extend_chain
from octavo.kv.promises import Promises
from octavo.kv.table import Table


class PrefixLookup:
    """Extends tables by blocks that are there already. `limit`: most tokens to take over."""

    def __init__(
        self, memory: TieredMemory, promises: Promises, block_size: int, match_tokens: bool
    ) -> None:
        self._memory = memory
        self._promises = promises
        self._pool = memory.pool
        self._block_size = block_size
        self._match_tokens = match_tokens

    def match(self, table: Table, token_ids: Sequence[int], limit: int) -> None:
        """Take the device blocks that hold the next tokens; `table` is aligned."""
        num_full = limit // self._block_size
        extend_chain(table.chain, table.root, token_ids, num_full, self._block_size)
        for i in range(len(table.block_ids), num_full):
            block_id = self._memory.acquire(table.chain[i])
            if block_id is None:
                break
            self._append(table, i, block_id)
        self._borrow(table, token_ids, limit)

    def find_below(self, table: Table, token_ids: Sequence[int], limit: int) -> list[Place]:
        """Where the blocks lie that continue the table; empty unless slower tiers are needed."""
        if not self._memory.has_lower_tiers or not table.is_aligned(self._block_size):
            return []
        first, places = len(table.block_ids), list[Place]()
        for key in table.chain[first : limit // self._block_size]:
            place = self._memory.find(key.hash)
            if place is None:
                break
            places.append(place)
        partial = self._longest_partial(table, first + len(places), token_ids, limit)
        if partial is not None and partial[0].tier is not Tier.DEVICE:
            places.append(partial[0])
        return places

    def recall(self, table: Table, token_ids: Sequence[int], limit: int, num_blocks: int) -> None:
        """Bring up to `num_blocks` of `find_below` into the table, as far as blocks can be had."""
        first = len(table.block_ids)
        wanted = table.chain[first : min(first + num_blocks, limit // self._block_size)]
        here = self._hold(wanted)
        for i, key in enumerate(wanted, first):
            block_id = here.pop(key.hash) if key.hash in here else self._memory.bring(key)
            if block_id is None:
                break
            self._promises.keep(key.hash)
            self._append(table, i, block_id)
        for block_id in here.values():
            self._pool.release(block_id)
        if len(table.block_ids) - first < num_blocks:
            self._bring_partial(table, token_ids, limit)

    def index(self, table: Table, num_full: int) -> None:
        """Make the first `num_full` blocks findable; those before `num_indexed` are already.

        Where an equal block is known, the table takes that one and lets its own go.
        """
        extend_chain(table.chain, table.root, table.token_ids, num_full, self._block_size)
        has_gap = False
        for i in range(max(table.num_indexed, table.num_dropped), num_full):
            own, key = table.block_ids[i], table.chain[i]
            known = self._pool.index(own, key)
            self._promises.keep(key.hash)
            if known != own and not self._replace(table, i, known):
                has_gap = True  # its own will be offered again
            if not has_gap:
                table.num_indexed = i + 1

    def _replace(self, table: Table, position: int, block_id: int) -> bool:
        """Take an equal block and let one's own go; False if that one is not to be had."""
        if self._memory.is_in_flight(block_id):  # perhaps it never comes
            return False
        own = table.block_ids[position]
        is_one_more = self._pool.ref_count(own) > 1 and not self._pool.ref_count(block_id)
        if is_one_more and not self._pool.num_free:
            return False
        self._pool.release(own)
        self._pool.acquire(block_id)
        table.replace(position, block_id)
        return True

    def _hold(self, wanted: Sequence[Key]) -> dict[bytes, int]:
        """References to those that are on the device: to make room for one must not evict others.

        What lies below is warmed for the same reason, the first of them most.
        """
        here = dict[bytes, int]()
        for key in reversed(wanted):
            block_id = self._memory.acquire(key)
            if block_id is None:
                self._memory.touch(key)
            else:
                here[key.hash] = block_id
        return here

    def _append(self, table: Table, position: int, block_id: int) -> None:
        """Block number `position`, full and findable."""
        if table.num_indexed == position:  # one before it may be a table's own
            table.num_indexed += 1
        table.add(block_id)
        table.num_committed += self._block_size

    def _borrow(self, table: Table, token_ids: Sequence[int], limit: int) -> None:
        """Hold the device block that begins with the most of the next tokens.

        Writing to it will copy it first, unless nobody else has a use for it.
        """
        partial = self._longest_partial(table, len(table.block_ids), token_ids, limit)
        if partial is None or partial[0].tier is not Tier.DEVICE:
            return
        _, key, num_tokens = partial
        block_id = self._memory.acquire(key, is_hit=False)
        if block_id is not None:
            table.add(block_id)
            table.num_committed += num_tokens

    def _bring_partial(self, table: Table, token_ids: Sequence[int], limit: int) -> None:
        """Bring such a block from a slower tier, into one that is the sequence's own."""
        partial = self._longest_partial(table, len(table.block_ids), token_ids, limit)
        if partial is None or partial[0].tier is Tier.DEVICE:
            return
        _, key, num_tokens = partial
        block_id = self._memory.bring(key, private=True)
        if block_id is not None:
            table.add(block_id)
            table.num_committed += num_tokens

    def _longest_partial(
        self, table: Table, position: int, token_ids: Sequence[int], limit: int
    ) -> tuple[Place, Key, int] | None:
        """A block that begins like block number `position` would, and how many tokens agree."""
        if not (self._match_tokens or table.has_given_up):
            return None
        start = position * self._block_size
        wanted = token_ids[start : min(limit, start + self._block_size)]
        found = self._memory.children.longest_match(table.parent(position), wanted)
        if found is None or found[1] == self._block_size:  # a whole block is no part
            return None
        place = self._memory.find(found[0].hash)
        assert place is not None, "a child that no tier has"
        is_near = place.tier is Tier.DEVICE or table.has_given_up
        if not is_near and 2 * found[1] < self._block_size:  # quicker computed than brought
            return None
        return place, *found

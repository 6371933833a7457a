"""Copy on write: what must happen before a sequence writes into a block that it has already.

The block that will be written next is the one at `num_committed`. It may be

    its own      nobody holds it or finds it             -> written in place
    shared       other tables hold it (fork)             -> copied
    borrowed     findable: it begins like what the       -> taken over: nobody finds it any more;
                 sequence needs (lookup.py)                 or copied, if more of it is of use
"""

from __future__ import annotations

from octavo.kv.memory import TieredMemory
from octavo.kv.table import Table


class CopyOnWrite:
    """Decides, and does it."""

    def __init__(self, memory: TieredMemory, block_size: int) -> None:
        self._memory = memory
        self._pool = memory.pool
        self._block_size = block_size

    def is_own(self, table: Table) -> bool:
        """True if the table can write as it is."""
        block_id = self._next_block(table)
        return block_id is None or not (
            self._is_shared(block_id) or self._pool.key_of(block_id) is not None
        )

    def is_borrowed(self, table: Table) -> bool:
        """True if the block that will be written next can be found by others."""
        block_id = self._next_block(table)
        return block_id is not None and self._pool.key_of(block_id) is not None

    def must_copy(self, table: Table, num_new: int) -> bool:
        """True if the block will be copied by a table that also takes `num_new` new blocks.

        One that nobody else holds is spared only while there are more free blocks than these: else
        it goes the way of any cached block, or a sequence that fills the pool could never run.
        """
        block_id = self._next_block(table)
        if block_id is None:
            return False
        if self._is_shared(block_id):
            return True
        return self._num_left_over(table, block_id) > 0 and self._pool.num_free > num_new

    def copy(self, table: Table, block_id: int) -> None:
        """The table goes on in `block_id`, a copy."""
        position = table.num_committed // self._block_size
        self._memory.copy(table.block_ids[position], block_id)
        table.replace(position, block_id)

    def take_over(self, table: Table) -> None:
        """The block becomes the table's own, if it is not."""
        block_id = self._next_block(table)
        if block_id is None or self._pool.key_of(block_id) is None:
            return
        if self._num_left_over(table, block_id):
            self._memory.swap_out(block_id)
        else:  # all that it holds will be part of the table's full block
            self._memory.discard(block_id)

    def _next_block(self, table: Table) -> int | None:
        position = table.num_committed // self._block_size
        return table.block_ids[position] if position < len(table.block_ids) else None

    def _is_shared(self, block_id: int) -> bool:
        # A pin is no owner: moves are executed before the step's writes, its copy is safe by then.
        return self._pool.ref_count(block_id) - self._memory.pins[block_id] > 1

    def _num_left_over(self, table: Table, block_id: int) -> int:
        """Tokens in the block after those that the table needs."""
        key = self._pool.key_of(block_id)
        return key.num_tokens - table.num_committed % self._block_size if key is not None else 0

"""A sequence's block table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.kv.prefix import Key, make_key

NO_BLOCK = 0
"""Stands in a table for a block that fell out of the attention window: nobody reads it."""


@dataclass(slots=True)
class Table:
    """A sequence's blocks. `chain` may run ahead of `block_ids`: known, not held.

    positions:  0 ............ num_committed ....... len(block_ids) * block_size
                computed       room, being computed

    The first `num_dropped` entries are NO_BLOCK. `token_ids` is the sequence's own list: it says
    what an unfinished tail holds when the table lets go of it. `has_given_up`: blocks were taken
    from it, so its unfinished tail may lie somewhere.
    """

    root: bytes
    block_ids: list[int] = field(default_factory=list)
    chain: list[Key] = field(default_factory=list)
    num_indexed: int = 0  # leading blocks that are findable
    num_committed: int = 0  # leading tokens that are computed
    num_dropped: int = 0
    token_ids: Sequence[int] = ()
    has_given_up: bool = False
    _view: tuple[int, ...] | None = None

    def is_aligned(self, block_size: int) -> bool:
        """True if the blocks are full and all computed: the next token begins a block."""
        return self.num_committed == len(self.block_ids) * block_size

    def parent(self, position: int) -> bytes:
        """Hash of what comes before block number `position`."""
        return self.chain[position - 1].hash if position else self.root

    def tail_key(self, block_size: int) -> Key:
        """The key of the unfinished block at `num_committed`."""
        position = self.num_committed // block_size
        tokens = self.token_ids[position * block_size : self.num_committed]
        return make_key(self.parent(position), tokens)

    # All changes of block_ids go through the next three: `view` must not grow old.

    @property
    def view(self) -> tuple[int, ...]:
        """block_ids for readers: the same object until the table changes."""
        if self._view is None:
            self._view = tuple(self.block_ids)
        return self._view

    def add(self, *block_ids: int) -> None:
        """More blocks at the end."""
        self.block_ids += block_ids
        self._view = None

    def replace(self, position: int, block_id: int) -> None:
        """Another block with the same contents, or NO_BLOCK."""
        self.block_ids[position] = block_id
        self._view = None

    def cut(self, num_blocks: int, block_size: int) -> None:
        """The blocks from number `num_blocks` on have been let go."""
        del self.block_ids[num_blocks:]
        self._view = None
        self.num_committed = min(self.num_committed, num_blocks * block_size)
        self.num_indexed = min(self.num_indexed, num_blocks)
        if num_blocks <= self.num_dropped:  # nothing is left but holes: begin again
            self.block_ids.clear()
            self.num_committed = self.num_indexed = self.num_dropped = 0

"""Buffers between the engine's thread and the disk's: as many as may be under way at once."""

from __future__ import annotations

import numpy as np

from octavo.runner.block_records import Bytes


class Staging:
    """A fixed number of buffers of one block; resident memory grows with the most used at once.

    Not safe between threads: its owner holds a lock.
    """

    def __init__(self, num_bytes: int, block_bytes: int) -> None:
        """At most `num_bytes`, at least one buffer."""
        rows = np.zeros((max(1, num_bytes // block_bytes), block_bytes), np.uint8)
        self._free: list[Bytes] = list(rows[::-1])
        self.num = len(self._free)

    @property
    def num_free(self) -> int:
        """Buffers that can be taken."""
        return len(self._free)

    def take(self) -> Bytes | None:
        """A buffer, uint8 [block_bytes], with anything in it; None if all are in use."""
        return self._free.pop() if self._free else None

    def give_back(self, buffer: Bytes) -> None:
        """Return a buffer that `take` gave."""
        self._free.append(buffer)

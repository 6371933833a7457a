"""A queue in policy order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from operator import attrgetter

from octavo.sched.sequence import Sequence

by_key: Callable[[Sequence], tuple[float, ...]] = attrgetter("key")
"""A sequence's place in the policy's order."""


class Queue:
    """Sequences sorted by key (keys are unique); insertion and removal cost one memmove."""

    def __init__(self) -> None:
        self._seqs: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._seqs)

    @property
    def last(self) -> Sequence:
        """The one that yields first."""
        return self._seqs[-1]

    def num_after(self, seq: Sequence) -> int:
        """How many come after `seq` in the order, be it here or not."""
        return len(self._seqs) - bisect_right(self._seqs, seq.key, key=by_key)

    def add(self, seq: Sequence) -> None:
        """Insert in order."""
        insort(self._seqs, seq, key=by_key)

    def remove(self, seq: Sequence) -> None:
        """Take out; ValueError if it is not here."""
        if not self.discard(seq):
            raise ValueError(f"{seq.seq_id} is not in this queue")

    def discard(self, seq: Sequence) -> bool:
        """Take out if it is here; True if it was."""
        i = bisect_left(self._seqs, seq.key, key=by_key)
        if i < len(self._seqs) and self._seqs[i] is seq:
            del self._seqs[i]
            return True
        return False

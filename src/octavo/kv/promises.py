"""Nobody computes what another is computing.

A sequence that starts to run promises the full blocks that it lacks; one that awaits such a block
stays in the queue and finds it once it is committed. Nobody waits for ever: a promise ends when it
is kept, or is withdrawn when its maker stops running.
"""

from __future__ import annotations

from collections.abc import Iterable


class Promises:
    """Block hash -> the sequence that is computing the block."""

    def __init__(self) -> None:
        self._makers: dict[bytes, str] = {}

    def make(self, seq_id: str, hashes: Iterable[bytes]) -> None:
        """Promise those that nobody has promised."""
        for block_hash in hashes:
            self._makers.setdefault(block_hash, seq_id)

    def is_by_other(self, block_hash: bytes, seq_id: str) -> bool:
        """True if a sequence other than `seq_id` has promised the block."""
        return self._makers.get(block_hash, seq_id) != seq_id

    def keep(self, block_hash: bytes) -> None:
        """The block is there, whoever made it."""
        self._makers.pop(block_hash, None)

    def withdraw(self, seq_id: str, hashes: Iterable[bytes]) -> None:
        """Take back those of `hashes` that `seq_id` has promised."""
        for block_hash in hashes:
            if self._makers.get(block_hash) == seq_id:
                del self._makers[block_hash]

    def check(self, seq_ids: set[str], known: set[bytes]) -> None:
        """Prove that makers exist and that no promise is kept already."""
        assert set(self._makers.values()) <= seq_ids, "a promise of nobody"
        assert not set(self._makers) & known, "a promise that is kept already"

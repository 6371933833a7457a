"""What those who run need soon: a newcomer that takes it is robbed, or robs, a moment later."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.kv.manager import KVManager
from octavo.sched.sequence import Sequence


def blocks_needed_soon(kv: KVManager, sequences: Iterable[Sequence]) -> int:
    """Blocks that `sequences` will take before long: the rest of their prompts, and a block each.

    None for those that end before they need it.
    """
    return sum(
        kv.num_new(seq.seq_id, min(seq.max_len, len(seq.tokens) + kv.block_size))
        for seq in sequences
    )

"""What those who run need soon: a newcomer that takes it is robbed, or robs, a moment later."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.kv.manager import KVManager
from octavo.sched.sequence import Sequence


def blocks_needed_soon(kv: KVManager, sequences: Iterable[Sequence]) -> int:
    """Blocks that `sequences` will take before those of the first that must end can be had.

    That is the rest of their prompts, and room for a token of each in every step until then; no
    more than a block each, as most end before they must.
    """
    sequences = list(sequences)
    num_steps = min((seq.max_len - len(seq.tokens) for seq in sequences), default=0)
    num_steps = min(num_steps, kv.block_size)
    return sum(kv.num_new(seq.seq_id, len(seq.tokens) + num_steps) for seq in sequences)

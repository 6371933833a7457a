"""Who runs first, who gives way, and what the loser gives up.

A policy is an order: the first in it run, the last yield.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.kv.manager import KVManager
from octavo.request import Request

Policy = Callable[[Request], tuple[float, ...]]


def fcfs(request: Request) -> tuple[float, ...]:
    """First come, first served."""
    return (request.arrival_time,)


def priority(request: Request) -> tuple[float, ...]:
    """Lower `priority` first; first come, first served among equals."""
    return (request.priority, request.arrival_time)


POLICIES: dict[str, Policy] = {"fcfs": fcfs, "priority": priority}

Preemption = Callable[[KVManager, str, int], int]
"""Makes a sequence let go of blocks: (kv, seq_id, how many are lacking) -> how many came free."""


def give_up_blocks(kv: KVManager, seq_id: str, num_blocks: int) -> int:
    """As many as are lacking, off the tail; they age in the pool and move down when taken."""
    return kv.give_up(seq_id, num_blocks)


def swap_out_sequence(kv: KVManager, seq_id: str, num_blocks: int) -> int:
    """All of them, to the tier below, at once."""
    return kv.swap_out(seq_id)


def recompute_sequence(kv: KVManager, seq_id: str, num_blocks: int) -> int:
    """All of them, and what they held is forgotten."""
    return kv.wipe(seq_id)


PREEMPTION_MODES: dict[str, Preemption] = {
    "blocks": give_up_blocks,
    "sequence": swap_out_sequence,
    "recompute": recompute_sequence,
}

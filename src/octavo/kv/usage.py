"""What the device's blocks are used for, at this moment.

    blocks in use   | held by tables: 7 | only read by a pending move: 1 |
    their slots     | a token: 98 ................ | reserved, empty: 30 |

References of pending moves are no sharing: they are taken out of what the pool counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.kv.manager import KVManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Blocks and slots of the device; a shared block counts once.

    `num_filled_slots` of the blocks in use hold a token, `num_reserved_slots` hold none yet.
    `num_shared` blocks are in several tables; `num_saved` more would be needed if none were.
    """

    num_filled_slots: int
    num_reserved_slots: int
    num_shared: int
    num_saved: int


def usage(kv: KVManager) -> Usage:
    """Count; costs as much as there are tables and pending moves."""
    pool, pins = kv.pool, kv.memory.pins
    num_filled, num_held, num_shared = kv.num_tokens_in_use, pool.num_used, pool.num_shared
    for block_id, num_pins in pins.items():
        num_tables = pool.ref_count(block_id) - num_pins
        if num_tables <= 1:
            num_shared -= pool.ref_count(block_id) > 1
        if num_tables == 0:  # nobody's any more: what it holds is what it can be found by
            key = pool.key_of(block_id)
            num_held -= 1
            num_filled -= kv.block_size - (key.num_tokens if key is not None else 0)
    return Usage(
        num_filled_slots=num_filled,
        num_reserved_slots=pool.num_used * kv.block_size - num_filled,
        num_shared=num_shared,
        num_saved=pool.num_references - sum(pins.values()) - num_held,
    )

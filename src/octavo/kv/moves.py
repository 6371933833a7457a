"""Moves: orders to the tensor plane about blocks. Data only; kv/ never touches a tensor.

    device   block 0 1 2 ...     the pool that attention reads
       │ Demote      ▲ Promote
    host     slot  0 1 2 ...     a second pool in main memory
       │ Demote      ▲ Promote
    disk     slot  0 1 2 ...     a store that outlives the process

Moves are carried out in the order of the list, before the step computes anything. Each sees what
those before it have written, so a block may be demoted and filled again within one list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from octavo.kv.prefix import Key


class Tier(Enum):
    """Where a block lies, fastest first."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Place:
    """Slot number `slot` of a tier; on the device that is the block id."""

    tier: Tier
    slot: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy all layers of device block `src` to device block `dst` (copy-on-write)."""

    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class Demote:
    """Copy a block to a slower tier. The bytes are taken when the move's turn comes.

    Disk writes go on in the background; one that cannot be queued or fails is reported in
    `MoveOutcome.lost`. `key` says what the block holds; the disk keeps it beside the bytes.
    """

    src: Place
    dst: Place
    key: Key


@dataclass(frozen=True, slots=True)
class Promote:
    """Copy a block from a slower tier to device block `dst`.

    From the host this is done at once. From the disk it takes a while: the move is reported in
    `MoveOutcome.arrived` after a later list. A slot that does not hold `key`, intact, is reported
    in `MoveOutcome.missing`.
    """

    src: Place
    dst: int
    key: Key


Move = Copy | Demote | Promote


@dataclass(slots=True)
class MoveOutcome:
    """What the tensor plane reports after a list of moves; nothing is said of those that are done.

    `arrived` and `missing`: promotions that have come to their end, well or not, of this list or an
    earlier one. `lost`: demotions whose copy does not exist. `seconds_per_block`: what a promotion
    from a tier takes, as measured so far.
    """

    arrived: list[Promote] = field(default_factory=list)
    missing: list[Promote] = field(default_factory=list)
    lost: list[Demote] = field(default_factory=list)
    seconds_per_block: dict[Tier, float] = field(default_factory=dict)

    @staticmethod
    def none_done(moves: Iterable[Move]) -> MoveOutcome:
        """Nothing of `moves` was carried out."""
        outcome = MoveOutcome()
        for move in moves:
            if isinstance(move, Promote):
                outcome.missing.append(move)
            elif isinstance(move, Demote):
                outcome.lost.append(move)
        return outcome

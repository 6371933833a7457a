"""Moves: orders to the tensor plane about blocks. Data only; kv/ never touches a tensor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy all layers of device block `src` to device block `dst` (copy-on-write)."""

    src: int
    dst: int


# Device <-> slower tiers will add Demote, Promote and Drop here; the runner dispatches on the type.
Move = Copy

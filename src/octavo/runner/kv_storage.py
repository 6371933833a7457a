"""The KV memory of one device, and the execution of moves on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.errors import ConfigError
from octavo.kv.moves import Copy, Move
from octavo.ops.base import TILE, AnyArray, Ops


@dataclass(frozen=True, slots=True)
class KVShape:
    """What fixes the size of a block: the model's attention and the element type.

    `block_size` in tokens, a multiple of 16; `dtype` is float16 or float32.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: str

    @property
    def tiles_per_block(self) -> int:
        """16-token tiles in a block."""
        return self.block_size // TILE

    @property
    def block_bytes(self) -> int:
        """Bytes of a block: keys and values of `block_size` tokens of all layers."""
        values = self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.block_size
        return values * np.dtype(self.dtype).itemsize

    def tiles(self, num_blocks: int) -> tuple[int, int, int, int, int]:
        """Shape of the storage array of `num_blocks` blocks, as `ops.base.Batch.kv` describes
        it."""
        num_tiles = num_blocks * self.tiles_per_block
        return (num_tiles, self.num_layers, 2, self.num_kv_heads, self.head_dim * TILE)


def reserve(shape: KVShape, num_blocks: int, remedy: str, field: str) -> AnyArray:
    """Memory of `num_blocks` blocks, zeros, taken from the system when touched. Raises ConfigError
    with `remedy`, about the setting `field`, if the address space cannot be had."""
    try:
        # calloc: zero pages, mapped only when touched.
        return np.zeros(shape.tiles(num_blocks), dtype=shape.dtype)
    except (MemoryError, ValueError):
        raise ConfigError(
            f"cannot reserve {num_blocks * shape.block_bytes:,} bytes"
            f" for {num_blocks:,} KV blocks; {remedy}",
            field,
        ) from None


def block_rows(array: AnyArray, shape: KVShape) -> npt.NDArray[np.uint8]:
    """A view of blocks as bytes, uint8 [num_blocks, block_bytes]."""
    return array.reshape(-1).view(np.uint8).reshape(-1, shape.block_bytes)


class KVStorage:
    """The array that holds every block; block b is tiles b * n .. (b + 1) * n, n = tiles_per_block.

    The memory reads as zeros until written and the kernel hands pages out on first touch, so
    resident memory grows with use.
    """

    def __init__(self, ops: Ops, shape: KVShape, num_blocks: int) -> None:
        """Reserve `num_blocks` blocks. Raises ConfigError if the address space cannot be had."""
        self.shape = shape
        self.num_blocks = num_blocks
        self._ops = ops
        self.array = reserve(
            shape, num_blocks, "lower --num-kv-blocks or --kv-cache-memory-bytes", "num_kv_blocks"
        )
        self.rows = block_rows(self.array, shape)
        """The same memory as uint8 [num_blocks, block_bytes]."""

    def execute(self, moves: Sequence[Move]) -> None:
        """Carry out copies in order; moves between tiers are `TierStorage`'s. Raises TypeError."""
        if not moves:
            return
        for move in moves:
            if not isinstance(move, Copy):
                raise TypeError(f"expected a Copy, got {move!r}")
        per_block = self.shape.tiles_per_block
        within = np.arange(per_block, dtype=np.int32)
        pairs = np.array([(m.src, m.dst) for m in moves], dtype=np.int32) * per_block
        src = (pairs[:, :1] + within).ravel()
        dst = (pairs[:, 1:] + within).ravel()
        self._ops.copy_tiles(self.array, src, dst)

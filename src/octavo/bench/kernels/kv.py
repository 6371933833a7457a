"""KV memory and sequences to attend over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.bench.kernels.shapes import ModelShape
from octavo.ops.base import I32, TILE, AnyArray, AttentionInputs, AttentionShape, Batch
from octavo.ops.cpu import CpuOps

COLD_BYTES = 256 << 20
"""KV memory has at least about this much, in as many layers as that takes."""

EMPTY = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class KV:
    """Random float16 keys and values: kv [tiles, layers, 2, Hkv, head_dim * 16]."""

    data: AnyArray
    shape: ModelShape

    @property
    def num_layers(self) -> int:
        """Layers that it holds, fewer than the model's where memory is short."""
        return int(self.data.shape[1])

    @property
    def attention(self) -> AttentionShape:
        """Heads of the model."""
        s = self.shape
        return AttentionShape(s.num_heads, s.num_kv_heads, s.head_dim, s.head_dim**-0.5)


def make_kv(shape: ModelShape, num_tiles: int) -> KV:
    """Memory of so many tiles, filled."""
    plane = shape.num_kv_heads * shape.head_dim * TILE
    layer_bytes = num_tiles * 2 * plane * 2
    layers = max(1, min(shape.num_layers, COLD_BYTES // layer_bytes))
    rng = np.random.default_rng(num_tiles)
    some = rng.standard_normal(1 << 20, np.float32).astype(np.float16)
    size = (num_tiles, layers, 2, shape.num_kv_heads, shape.head_dim * TILE)
    return KV(np.resize(some, size), shape)


def batch_over(
    ops: CpuOps, kv: KV, tiles: I32, context: int, num_seqs: int, num_rows: int
) -> Batch:
    """Sequences of `context` tokens each, the last `num_rows` of which are queries.

    tiles int32 [num_seqs * ceil(context / 16)]: those of the first sequence, then of the next.
    """
    per_seq = -(-context // TILE)
    inputs = AttentionInputs(
        row_starts=np.arange(num_seqs + 1, dtype=np.int32) * np.int32(num_rows),
        context_lens=np.full(num_seqs, context, np.int32),
        tiles=np.ascontiguousarray(tiles, np.int32),
        tile_starts=np.arange(num_seqs + 1, dtype=np.int32) * np.int32(per_seq),
    )
    positions = np.tile(np.arange(context - num_rows, context, dtype=np.int32), num_seqs)
    owner = np.repeat(np.arange(num_seqs, dtype=np.int32), num_rows)
    slots = inputs.tiles[owner * per_seq + positions // TILE] * TILE + positions % TILE
    plan = ops.plan_attention(inputs)
    return Batch(EMPTY, positions, slots.astype(np.int32), plan, EMPTY, kv.data)


def queries(shape: ModelShape, num_rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Random queries [num_rows, Hq * head_dim]."""
    rng = np.random.default_rng(num_rows)
    return rng.standard_normal((num_rows, shape.num_heads * shape.head_dim), np.float32)

"""Everything between the large kernels: norms, rotary embedding with the KV write, gate, copies of
blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.bench.kernels.kv import batch_over, make_kv
from octavo.bench.kernels.result import Result
from octavo.bench.kernels.shapes import ModelShape
from octavo.bench.kernels.timing import Call, seconds_of
from octavo.ops.base import TILE, Rope
from octavo.ops.cpu import CpuOps


def elementwise_results(
    ops: CpuOps, shape: ModelShape, rows: tuple[int, ...], min_seconds: float, rounds: int
) -> Iterator[Result]:
    """Each of them for each number of rows; data is in the cache where it fits, as in a step."""
    for count in rows:
        small = [*_norms(ops, shape, count), _gate(ops, shape, count)]
        small += [_rope(ops, shape, count), _copy(ops, shape, count)]
        for name, num_bytes, call in small:
            seconds = seconds_of(call, min_seconds, rounds)
            yield Result("elementwise", shape.name, name, count, seconds, num_bytes)


def _norms(ops: CpuOps, shape: ModelShape, count: int) -> list[tuple[str, int, Call]]:
    x = np.random.default_rng(4).standard_normal((count, shape.hidden), np.float32)
    residual, weight = np.zeros_like(x), np.ones(shape.hidden, np.float32)
    return [
        ("rms_norm", 8 * x.size, lambda: ops.rms_norm(x, weight, 1e-5)),
        ("rms_norm + residual", 16 * x.size, lambda: ops.rms_norm(x, weight, 1e-5, residual)),
    ]


def _gate(ops: CpuOps, shape: ModelShape, count: int) -> tuple[str, int, Call]:
    size = (count, 2 * shape.intermediate)
    gate_up = np.random.default_rng(5).standard_normal(size, np.float32)
    return "silu_mul", 6 * gate_up.size, lambda: ops.silu_mul(gate_up)


def _rope(ops: CpuOps, shape: ModelShape, count: int) -> tuple[str, int, Call]:
    """One token of each of `count` sequences."""
    context = 128
    kv = make_kv(shape, count * context // TILE)
    tiles = np.arange(count * context // TILE, dtype=np.int32)
    batch = batch_over(ops, kv, tiles, context, count, 1)
    angles = np.random.default_rng(1).random((context, shape.head_dim // 2), np.float32)
    rope = Rope(np.cos(angles), np.sin(angles), False)
    q, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    qkv = np.random.default_rng(2).standard_normal((count, q + 2 * kv_size), np.float32)
    num_bytes = 4 * qkv.size + 4 * count * q + 2 * 2 * count * kv_size
    heads = kv.attention
    return "rope_and_store", num_bytes, lambda: ops.rope_and_store(qkv, 0, batch, heads, rope)


def _copy(ops: CpuOps, shape: ModelShape, count: int) -> tuple[str, int, Call]:
    """`count` whole blocks, all layers."""
    kv = make_kv(shape, 2 * count)
    order = np.random.default_rng(3).permutation(2 * count).astype(np.int32)
    src, dst = order[:count].copy(), order[count:].copy()
    num_bytes = kv.data.nbytes  # half of it is read, half written
    return "copy_tiles", num_bytes, lambda: ops.copy_tiles(kv.data, src, dst)

"""The reference op set: plain numpy, slow, obviously right. Every other op set is tested against it.

The exactness contract holds because every sum is one call of the same dot product over one vector (`_dot`), whose
bits depend on the two vectors alone. A BLAS matrix product would not do: which kernel sums a row depends on how
many rows there are (gemm), and even for one row on the number of threads (gemv).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from octavo.ops.base import (
    F32,
    I32,
    TILE,
    AnyArray,
    AttentionInputs,
    AttentionShape,
    Batch,
    Forward,
    Rope,
    WeightTensor,
)
from octavo.ops.formats import WeightTable, dequantize, quantize

_F16_MAX = 65504.0
_DOT_LEN = 8192  # BLAS may split a longer dot product over threads
_ROWS = 64  # rows that stay in the cache while the weights stream by
_MIN_SPLIT = 1 << 18  # multiply-adds below which threads cost more than they bring


def _dot(a: F32, b: F32) -> F32:
    """Dot products over the last axis, the others broadcast: [..., K], [..., K] -> [...].

    numpy hands each pair of vectors to BLAS's dot on its own, whatever the shape around them. The numbers
    of a vector have to lie side by side: for strided ones BLAS sums in another order.
    """
    a, b = _contiguous(a), _contiguous(b)
    total = None
    for k in range(0, a.shape[-1], _DOT_LEN):
        part = a[..., None, k : k + _DOT_LEN] @ b[..., k : k + _DOT_LEN, None]
        total = part if total is None else total + part
    assert total is not None
    return np.asarray(total[..., 0, 0], dtype=np.float32)


def _contiguous(x: F32) -> F32:
    """x, copied if the numbers along its last axis are not neighbours."""
    return x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)


def _norm(x: F32, weight: F32, eps: float) -> F32:
    """RMSNorm over the last axis."""
    mean_square = _dot(x, x) / np.float32(x.shape[-1])
    return np.asarray(x / np.sqrt(mean_square + np.float32(eps))[..., None] * weight, np.float32)


def _rotate(x: F32, cos: F32, sin: F32, interleaved: bool) -> F32:
    """Turn the first R dimensions of x [T, heads, D] by the angles whose cos, sin are [T, R/2]."""
    half = cos.shape[1]
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    a, b = x[:, :, first], x[:, :, second]
    c, s = cos[:, None, :], sin[:, None, :]
    out = x.copy()
    out[:, :, first] = a * c - b * s
    out[:, :, second] = b * c + a * s
    return out


class ReferenceOps:
    """Implements `octavo.ops.base.Ops`. Weights become float32 when they are prepared.

    `threads` share out the outputs of `linear`; no number changes with them.
    """

    name = "reference"

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def quantize(self, weight: WeightTensor, format: str) -> WeightTensor:
        """By the gguf package."""
        return quantize(weight, format)

    def prepare_linear(self, parts: Sequence[WeightTensor]) -> F32:
        """Matrices [n_i, K] -> float32 [sum(n_i), K]."""
        matrices = [dequantize(p) for p in parts]
        return matrices[0] if len(matrices) == 1 else np.concatenate(matrices)

    def prepare_table(self, weight: WeightTensor) -> WeightTable:
        """[V, H], left in its format: rows become float32 when they are looked up."""
        return WeightTable(weight)

    def prepare_vector(self, weight: WeightTensor) -> F32:
        """float32 [n]."""
        return dequantize(weight).reshape(-1)

    def plan_attention(self, inputs: AttentionInputs) -> AttentionInputs:
        """Nothing to prepare."""
        return inputs

    def embedding(self, table: WeightTable, token_ids: I32) -> F32:
        """int32 [T] -> [T, H]."""
        return table.rows(token_ids)

    def rms_norm(self, x: F32, weight: F32, eps: float, residual: F32 | None = None) -> F32:
        """RMSNorm of each row of x [T, H]. With `residual`: residual += x in place, then the norm of that."""
        if residual is not None:
            residual += x
            x = residual
        return _norm(x, weight, eps)

    def linear(self, x: F32, weight: F32, bias: F32 | None = None) -> F32:
        """x [T, K] -> [T, N]: every output is one dot product of length K."""
        num_outputs = weight.shape[0]
        out = np.empty((x.shape[0], num_outputs), np.float32)

        def fill(start: int, end: int) -> None:
            for row in range(0, len(x), _ROWS):
                rows = x[row : row + _ROWS]
                out[row : row + _ROWS, start:end] = _dot(weight[start:end, None], rows[None]).T

        if self._pool is None or x.shape[0] * weight.size < _MIN_SPLIT:
            fill(0, num_outputs)
        else:
            cuts = np.linspace(0, num_outputs, self._threads + 1).astype(int).tolist()
            list(self._pool.map(fill, cuts[:-1], cuts[1:]))
        if bias is not None:
            out += bias
        return out

    def rope_and_store(
        self,
        qkv: F32,
        layer: int,
        batch: Batch,
        shape: AttentionShape,
        rope: Rope,
        q_norm: F32 | None = None,
        k_norm: F32 | None = None,
        eps: float = 0.0,
    ) -> F32:
        """qkv [T, (Hq + 2 Hkv) * D] -> rotated queries [T, Hq * D]; keys and values go to batch.kv."""
        hq, hkv, d = shape.num_heads, shape.num_kv_heads, shape.head_dim
        heads = qkv.reshape(-1, hq + 2 * hkv, d)
        q, k, v = heads[:, :hq], heads[:, hq : hq + hkv], heads[:, hq + hkv :]
        if q_norm is not None:
            q = _norm(q, q_norm, eps)
        if k_norm is not None:
            k = _norm(k, k_norm, eps)
        cos, sin = rope.cos[batch.positions], rope.sin[batch.positions]
        q = _rotate(q, cos, sin, rope.interleaved)
        k = _rotate(k, cos, sin, rope.interleaved)
        if batch.kv.dtype == np.float16:
            k, v = np.clip(k, -_F16_MAX, _F16_MAX), np.clip(v, -_F16_MAX, _F16_MAX)
        tile, offset = batch.slots // TILE, batch.slots % TILE
        keys = batch.kv[:, layer, 0].reshape(-1, hkv, d, TILE)
        values = batch.kv[:, layer, 1].reshape(-1, hkv, TILE, d)
        keys[tile, :, :, offset] = k
        values[tile, :, offset, :] = v
        return q.reshape(-1, hq * d)

    def paged_attention(self, q: F32, layer: int, batch: Batch, shape: AttentionShape) -> F32:
        """Causal attention of q [T, Hq * D] over the tiles of batch.attention -> [T, Hq * D]."""
        inputs: AttentionInputs = batch.attention
        hkv, d = shape.num_kv_heads, shape.head_dim
        queries = q.reshape(len(q), hkv, -1, d)
        out = np.empty_like(queries)
        for s, context_len in enumerate(inputs.context_lens.tolist()):
            start, end = inputs.row_starts[s : s + 2].tolist()
            first = _first_seen(context_len - (end - start), shape.window) // TILE * TILE
            tiles = inputs.tiles[inputs.tile_starts[s] + first // TILE : inputs.tile_starts[s + 1]]
            keys = batch.kv[tiles, layer, 0].reshape(-1, hkv, d, TILE)
            keys = keys.transpose(1, 0, 3, 2).reshape(hkv, -1, d).astype(np.float32)
            values = batch.kv[tiles, layer, 1].reshape(-1, hkv, TILE, d)
            values = values.transpose(1, 3, 0, 2).reshape(hkv, d, -1).astype(np.float32)
            for row in range(start, end):
                position = context_len - (end - row)
                seen = slice(_first_seen(position, shape.window) - first, position + 1 - first)
                out[row] = _attend(queries[row], keys[:, seen], values[:, :, seen], shape.scale)
        return out.reshape(len(q), -1)

    def silu_mul(self, gate_up: F32) -> F32:
        """[T, 2 I] -> silu(first half) * second half, [T, I]."""
        half = gate_up.shape[1] // 2
        gate, up = gate_up[:, :half], gate_up[:, half:]
        with np.errstate(over="ignore"):  # exp(-gate) may become infinite: the quotient is then 0
            return np.asarray(gate / (np.float32(1) + np.exp(-gate)) * up, np.float32)

    def take_rows(self, x: F32, rows: I32) -> F32:
        """x [T, n], rows int32 [R] -> [R, n]."""
        return x[rows]

    def argmax(self, x: F32) -> list[int]:
        """See `Ops.argmax`: numpy takes the first of equals, and the first NaN before all else."""
        if x.shape[1] == 0:
            return [-1] * len(x)
        best = x.argmax(axis=1)
        finite = np.isfinite(x[np.arange(len(x)), best])
        return np.where(finite, best, -1).tolist()  # type: ignore[no-any-return]

    def compile(self, forward: Forward) -> Callable[[Batch], F32]:
        """Nothing to prepare."""
        return partial(forward, self)

    def copy_tiles(self, kv: AnyArray, src: I32, dst: I32) -> None:
        """kv[dst[i]] = kv[src[i]] for each i, in order, as bytes."""
        raw = kv.view(np.uint8)
        for a, b in zip(src.tolist(), dst.tolist(), strict=True):
            raw[b] = raw[a]


def _first_seen(position: int, window: int | None) -> int:
    """The first position that the query at `position` sees."""
    return 0 if window is None else max(0, position - window + 1)


def _attend(q: F32, keys: F32, values: F32, scale: float) -> F32:
    """One row's heads q [Hkv, G, D] over keys [Hkv, n, D] and values [Hkv, D, n] -> [Hkv, G, D]."""
    scores = _dot(q[:, :, None], keys[:, None]) * np.float32(scale)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = _dot(weights, np.ones_like(weights))
    return _dot(weights[:, :, None], values[:, None]) / total[..., None]

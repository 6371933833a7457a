"""Rotary embedding fused with head norms and the write into KV memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from octavo.ops.base import TILE, AttentionShape, Batch, Rope
from octavo.ops.cpu import CpuOps
from tests.cpu.paged import AVAILABLE, LAYER, LAYERS, make_batch

isas = pytest.mark.parametrize("isa", AVAILABLE)
dtypes = pytest.mark.parametrize("dtype", [np.float16, np.float32])
NUM_POSITIONS = 500
TILES = 12
EPS = 1e-6


def make_rope(num_pairs: int, interleaved: bool) -> Rope:
    angles = np.arange(NUM_POSITIONS)[:, None] / 100.0 ** (np.arange(num_pairs) / max(num_pairs, 1))
    return Rope(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), interleaved)


def make_qkv(shape: AttentionShape, rows: int, seed: int = 0) -> np.ndarray:
    size = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    return np.random.default_rng(seed).standard_normal((rows, size)).astype(np.float32)


def make_call(shape: AttentionShape, rows: int, dtype: type, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    kv = np.full((TILES, LAYERS, 2, shape.num_kv_heads, shape.head_dim * TILE), np.nan, dtype)
    slots = rng.permutation(TILES * TILE)[:rows]
    return make_batch(kv, None, rng.integers(0, NUM_POSITIONS, rows), slots)


def heads_64(qkv, shape, rope, positions, q_norm, k_norm):
    """float64: rotated q [T, Hq, D], rotated k [T, Hkv, D], v."""
    x = qkv.reshape(len(qkv), -1, shape.head_dim).astype(np.float64)
    q, k, v = np.split(x, [shape.num_heads, shape.num_heads + shape.num_kv_heads], axis=1)
    half = rope.cos.shape[1]
    first = slice(0, 2 * half, 2) if rope.interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if rope.interleaved else slice(half, 2 * half)
    turn = (rope.cos + 1j * rope.sin.astype(np.float64))[positions][:, None]
    for part, norm in ((q, q_norm), (k, k_norm)):
        if norm is not None:
            part *= norm / np.sqrt((part**2).mean(-1, keepdims=True) + EPS)
        turned = (part[..., first] + 1j * part[..., second]) * turn
        part[..., first], part[..., second] = turned.real, turned.imag
    return q, k, v


def stored(
    kv: np.ndarray, slots: np.ndarray, shape: AttentionShape
) -> tuple[np.ndarray, np.ndarray]:
    """k, v [T, Hkv, D] that lie at the slots of the layer."""
    hkv, d = shape.num_kv_heads, shape.head_dim
    keys = kv[:, LAYER, 0].reshape(-1, hkv, d, TILE)
    values = kv[:, LAYER, 1].reshape(-1, hkv, TILE, d)
    return keys[slots // TILE, :, :, slots % TILE], values[slots // TILE, :, slots % TILE]


@isas
@dtypes
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("with_norms", [False, True])
@pytest.mark.parametrize(
    ("head_dim", "num_pairs"), [(64, 32), (128, 64), (80, 20), (24, 12), (8, 0)]
)
def test_rope_and_store(isa, dtype, interleaved, with_norms, head_dim, num_pairs):
    shape = AttentionShape(6, 2, head_dim, 1.0)
    rope, qkv = make_rope(num_pairs, interleaved), make_qkv(shape, 70)
    q_norm, k_norm = make_qkv(shape, 2, seed=5)[:, :head_dim] if with_norms else (None, None)
    batch = make_call(shape, 70, dtype)
    out = CpuOps(2, isa).rope_and_store(qkv, LAYER, batch, shape, rope, q_norm, k_norm, EPS)
    q, k, v = heads_64(qkv, shape, rope, batch.positions, q_norm, k_norm)
    np.testing.assert_allclose(out, q.reshape(70, -1), rtol=0, atol=3e-6)
    got_k, got_v = stored(batch.kv, batch.slots, shape)
    np.testing.assert_allclose(got_k, k, rtol=1e-3 if dtype == np.float16 else 0, atol=3e-6)
    np.testing.assert_array_equal(got_v, v.astype(dtype))
    others = np.setdiff1d(np.arange(TILES * TILE), batch.slots)
    for untouched in (*stored(batch.kv, others, shape), batch.kv[:, 1 - LAYER]):
        assert np.isnan(untouched).all()


@isas
@dtypes
@pytest.mark.parametrize("interleaved", [False, True])
def test_rows_stand_alone(isa, dtype, interleaved):
    """The same bits for a row alone and among others, with any number of threads."""
    shape = AttentionShape(9, 3, 64, 1.0)
    rope, qkv, norm = make_rope(32, interleaved), make_qkv(shape, 150), make_qkv(shape, 1)[0, :64]
    batch = make_call(shape, 150, dtype)
    expected = []
    for i in range(150):
        row = dataclasses.replace(
            batch, positions=batch.positions[i : i + 1], slots=batch.slots[i : i + 1]
        )
        expected.append(
            CpuOps(1, isa).rope_and_store(qkv[i : i + 1], LAYER, row, shape, rope, norm, norm, EPS)
        )
    for threads in (1, 2, 3):
        again = make_call(shape, 150, dtype)
        out = CpuOps(threads, isa).rope_and_store(qkv, LAYER, again, shape, rope, norm, norm, EPS)
        np.testing.assert_array_equal(out, np.concatenate(expected))
        np.testing.assert_array_equal(again.kv, batch.kv)


@isas
def test_float16_rounding_and_range(isa):
    """To nearest even, as numpy does; subnormals kept; what is too large becomes the largest; NaN stays."""
    shape = AttentionShape(1, 1, 64, 1.0)
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((8, 3, 64)) * 2.0 ** rng.integers(-30, 18, (8, 3, 64))
    qkv = wide.astype(np.float32)
    halves = rng.integers(0, 0x7BFF, 64).astype(np.uint16)
    qkv[0, 2] = halves.view(np.float16).astype(np.float32)
    following = (halves + 1).view(np.float16).astype(np.float32)
    qkv[1, 2] = (qkv[0, 2] + following) / 2  # exactly between two float16
    qkv[2, 2, :8] = [65504, 65519.99, 65520, 1e30, np.inf, -np.inf, -65520, np.nan]
    qkv[2, 2, 8:14] = [2**-24, 2**-25, 3 * 2**-26, -(2**-25), 0.0, -0.0]
    batch = make_call(shape, 8, np.float16)
    CpuOps(1, isa).rope_and_store(qkv.reshape(8, -1), LAYER, batch, shape, make_rope(0, False))
    got_k, got_v = stored(batch.kv, batch.slots, shape)
    with np.errstate(over="ignore"):
        expected = np.clip(qkv, -65504, 65504).astype(np.float16)
    np.testing.assert_array_equal(got_k[:, 0], expected[:, 1])
    np.testing.assert_array_equal(got_v[:, 0], expected[:, 2])
    np.testing.assert_array_equal(np.signbit(got_v[:, 0]), np.signbit(expected[:, 2]))


def test_float32_memory_keeps_every_number():
    shape = AttentionShape(1, 1, 8, 1.0)
    qkv = (
        np.array([[1e30, -1e-40, np.inf, np.nan, 0.1, -0.0, 3e38, 7]], np.float32)
        .repeat(3, 0)
        .reshape(1, 24)
    )
    batch = make_call(shape, 1, np.float32)
    CpuOps(1).rope_and_store(qkv, LAYER, batch, shape, make_rope(0, True))
    for got in stored(batch.kv, batch.slots, shape):
        np.testing.assert_array_equal(got[0, 0], qkv[0, :8])


# ---- what does not fit

SHAPE = AttentionShape(4, 2, 16, 1.0)
GOOD = {
    "qkv": make_qkv(SHAPE, 3),
    "layer": 0,
    "rope": make_rope(8, False),
    "q_norm": None,
    "k_norm": None,
}


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qkv": make_qkv(SHAPE, 3)[:, :-1].copy()}, r"qkv: .* \[any, 128\], got float32 \[3, 127\]"),
        ({"qkv": make_qkv(SHAPE, 3).astype(np.float64)}, "qkv: .* got float64"),
        ({"positions": ints(0, 1)}, r"positions: .* int32 \[3\], got int32 \[2\]"),
        ({"positions": np.arange(3)}, "positions: .* got int64"),
        ({"positions": ints(0, 1, NUM_POSITIONS)}, "positions from 0 to 499, got 500 at index 2"),
        ({"positions": ints(0, -1, 2)}, "positions from 0 to 499, got -1 at index 1"),
        ({"slots": ints(0, TILES * TILE, 2)}, "slots from 0 to 191, got 192 at index 1"),
        ({"slots": ints(-1, 1, 2)}, "slots from 0 to 191, got -1 at index 0"),
        ({"slots": ints(1, 2)}, r"slots: .* \[3\], got int32 \[2\]"),
        ({"layer": LAYERS}, "a layer from 0 to 1, got 2"),
        ({"layer": -1}, "a layer from 0 to 1, got -1"),
        ({"rope": make_rope(9, False)}, "at most 8 pairs .* got 9"),
        ({"rope": Rope(GOOD["rope"].cos, GOOD["rope"].sin[1:], False)}, r"rope.sin: .* \[500, 8\], got .* \[499, 8\]"),
        ({"q_norm": np.ones(8, np.float32)}, r"q_norm: .* \[16\], got float32 \[8\]"),
        ({"k_norm": np.ones(16)}, "k_norm: .* got float64"),
        ({"kv": np.zeros((TILES, LAYERS, 2, 3, 256), np.float16)}, "kv: .* got float16"),
    ],
)  # fmt: skip
def test_calls_that_do_not_fit(change, message):
    batch = make_call(SHAPE, 3, np.float16)
    fields = {k: v for k, v in change.items() if k in ("positions", "slots", "kv")}
    batch = dataclasses.replace(batch, **fields)
    before = batch.kv.copy()
    args = GOOD | {k: v for k, v in change.items() if k not in fields}
    with pytest.raises(ValueError, match=message):
        CpuOps(2).rope_and_store(shape=SHAPE, batch=batch, **args)
    np.testing.assert_array_equal(batch.kv, before)

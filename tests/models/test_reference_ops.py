"""The reference op set against textbook formulas in float64, and the exactness contract on it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.ops.base import AttentionShape, Rope, WeightTensor
from octavo.ops.formats import dequantize, from_float32, quantize
from octavo.ops.reference import ReferenceOps
from tests.models.drive import Run, make_batch

OPS = ReferenceOps()
SHAPE = AttentionShape(num_heads=6, num_kv_heads=2, head_dim=20, scale=20**-0.5)
LAYERS = 2


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def matrix(n: int, k: int, seed: int = 0) -> np.ndarray:
    return OPS.prepare_linear([from_float32("w", normal(n, k, seed=seed))])


def tables(length: int, half: int, interleaved: bool) -> Rope:
    angles = np.random.default_rng(7).uniform(-3, 3, (length, half))
    return Rope(np.cos(angles).astype("f4"), np.sin(angles).astype("f4"), interleaved)


def new_kv(tiles: int, dtype: str = "float32") -> np.ndarray:
    return np.full((tiles, LAYERS, 2, SHAPE.num_kv_heads, SHAPE.head_dim * 16), np.nan, dtype)


def test_linear_is_the_matrix_product_with_bias() -> None:
    x, bias = normal(70, 333, seed=1), normal(51, seed=2)
    weight = OPS.prepare_linear(
        [from_float32("a", normal(50, 333)), from_float32("b", normal(1, 333))]
    )
    expected = x.astype("f8") @ np.vstack([normal(50, 333), normal(1, 333)]).astype("f8").T + bias
    np.testing.assert_allclose(OPS.linear(x, weight, bias), expected, atol=1e-4)


def test_linear_sums_rows_longer_than_one_dot_product() -> None:
    x, w = normal(2, 20_000, seed=3), normal(3, 20_000, seed=4)
    weight = OPS.prepare_linear([from_float32("w", w)])
    np.testing.assert_allclose(OPS.linear(x, weight), x.astype("f8") @ w.astype("f8").T, atol=1e-3)


def test_no_rows_give_no_rows() -> None:
    assert OPS.linear(np.empty((0, 333), np.float32), matrix(50, 333)).shape == (0, 50)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_of_linear_has_the_same_bits_in_every_batch_and_on_any_threads(threads: int) -> None:
    x, weight = normal(67, 577, seed=5), matrix(411, 577)
    together = ReferenceOps(threads).linear(x, weight)
    alone = np.concatenate([OPS.linear(row[None], weight) for row in x])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(
        ReferenceOps(threads).linear(x[::-1].copy(), weight), together[::-1]
    )


def test_linear_does_not_depend_on_the_threads_of_blas() -> None:
    program = (
        "import hashlib, numpy as np; from octavo.ops.reference import ReferenceOps as R\n"
        "r = np.random.default_rng(0); h = hashlib.sha256()\n"
        "for n, k in ((1000, 577), (20, 14336), (4096, 300)):\n"
        "  w, x = (r.standard_normal((m, k), dtype=np.float32) for m in (n, 3))\n"
        "  h.update(R().linear(x, w).tobytes())\n"
        "print(h.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "3", "8")
    }
    assert len(digests) == 1


def test_rms_norm_and_its_residual() -> None:
    x, weight, residual = normal(5, 96), normal(96, seed=1), normal(5, 96, seed=2)
    total = residual.astype("f8") + x
    expected = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5) * weight
    got = OPS.rms_norm(x, weight, 1e-5, residual)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_array_equal(residual, total.astype(np.float32))
    np.testing.assert_array_equal(OPS.rms_norm(residual[3:4], weight, 1e-5), got[3:4])


def test_silu_mul_over_the_whole_range() -> None:
    gate = np.array([[-200.0, -90.0, -3.0, 0.0, 2.0, 90.0]], np.float32)
    up = np.full_like(gate, 1.5)
    got = OPS.silu_mul(np.concatenate([gate, up], axis=1))
    wide = gate.astype("f8")
    np.testing.assert_allclose(got, wide / (1 + np.exp(-wide)) * 1.5, rtol=1e-5, atol=1e-36)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_turns_pairs_as_complex_numbers_and_leaves_the_rest(interleaved: bool) -> None:
    half, d, hq, hkv = 6, SHAPE.head_dim, SHAPE.num_heads, SHAPE.num_kv_heads
    rope, kv = tables(40, half, interleaved), new_kv(3)
    qkv = normal(7, (hq + 2 * hkv) * d)
    batch = make_batch(OPS, kv, [Run(range(7), 20, [2, 1])])
    q = OPS.rope_and_store(qkv, 1, batch, SHAPE, rope).reshape(7, hq, d)
    heads = qkv.reshape(7, -1, d).astype("f8")
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    expected = heads.copy()
    for i, (a, b) in enumerate(pairs):
        turn = (rope.cos[20:27, i] + 1j * rope.sin[20:27, i])[:, None]
        z = (heads[:, :, a] + 1j * heads[:, :, b]) * turn
        expected[:, :, a], expected[:, :, b] = z.real, z.imag
    np.testing.assert_allclose(q, expected[:, :hq], atol=1e-6)
    for t, p in enumerate(range(20, 27)):
        assert p // 16 == 1  # the second tile of the sequence, tile 1 of the storage
        keys = kv[1, 1, 0].reshape(hkv, d, 16)[:, :, p % 16]
        values = kv[1, 1, 1].reshape(hkv, 16, d)[:, p % 16]
        np.testing.assert_allclose(keys, expected[t, hq : hq + hkv], atol=1e-6)
        np.testing.assert_array_equal(values, qkv.reshape(7, -1, d)[t, hq + hkv :])
    assert np.isnan(kv).sum() == kv.size - 7 * 2 * hkv * d  # nothing else was written


def test_head_norms_come_before_the_rotation() -> None:
    d, hq, hkv = SHAPE.head_dim, SHAPE.num_heads, SHAPE.num_kv_heads
    rope = tables(8, d // 2, False)
    qkv, qw, kw = normal(3, (hq + 2 * hkv) * d), normal(d, seed=1), normal(d, seed=2)
    heads = qkv.reshape(3, -1, d).copy()
    heads[:, :hq] = OPS.rms_norm(heads[:, :hq].reshape(-1, d), qw, 1e-6).reshape(3, hq, d)
    k = heads[:, hq : hq + hkv]
    heads[:, hq : hq + hkv] = OPS.rms_norm(k.reshape(-1, d), kw, 1e-6).reshape(3, hkv, d)
    kv, kv2 = new_kv(1), new_kv(1)
    got = OPS.rope_and_store(
        qkv, 0, make_batch(OPS, kv, [Run(range(3), 0, [0])]), SHAPE, rope, qw, kw, 1e-6
    )
    expected = OPS.rope_and_store(
        heads.reshape(3, -1), 0, make_batch(OPS, kv2, [Run(range(3), 0, [0])]), SHAPE, rope
    )
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(kv, kv2)


def test_float16_storage_rounds_and_clamps() -> None:
    d, hq, hkv = SHAPE.head_dim, SHAPE.num_heads, SHAPE.num_kv_heads
    rope = Rope(np.ones((4, d // 2), np.float32), np.zeros((4, d // 2), np.float32), False)
    qkv = normal(1, (hq + 2 * hkv) * d)
    qkv[0, hq * d : hq * d + 3] = 1e9, -1e9, 0.1
    qkv[0, (hq + hkv) * d] = np.inf
    kv = new_kv(1, "float16")
    OPS.rope_and_store(qkv, 0, make_batch(OPS, kv, [Run([0], 0, [0])]), SHAPE, rope)
    key = kv[0, 0, 0].reshape(hkv, d, 16)[0, :3, 0]
    np.testing.assert_array_equal(key, np.array([65504, -65504, 0.1], np.float16))
    assert kv[0, 0, 1].reshape(hkv, 16, d)[0, 0, 0] == np.float16(65504)


def fill(kv: np.ndarray, length: int, tiles: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random keys and values [length, Hkv, D] in layer 1 of the tiles; returns them as stored."""
    hkv, d = SHAPE.num_kv_heads, SHAPE.head_dim
    k, v = normal(2, length, hkv, d, seed=seed).astype(kv.dtype)
    for p in range(length):
        kv[tiles[p // 16], 1, 0].reshape(hkv, d, 16)[:, :, p % 16] = k[p]
        kv[tiles[p // 16], 1, 1].reshape(hkv, 16, d)[:, p % 16] = v[p]
    return k, v


def dense(q: np.ndarray, k: np.ndarray, v: np.ndarray, first: int) -> np.ndarray:
    """Causal softmax attention in float64; row t of q [T, Hq, D] is at position first + t."""
    group = SHAPE.num_heads // SHAPE.num_kv_heads
    out = np.empty(q.shape)
    for t in range(len(q)):
        for h in range(SHAPE.num_heads):
            n = first + t + 1
            scores = k[:n, h // group].astype("f8") @ q[t, h] * SHAPE.scale
            weights = np.exp(scores - scores.max())
            out[t, h] = weights / weights.sum() @ v[:n, h // group].astype("f8")
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_of_a_mixed_batch_among_garbage(dtype: str) -> None:
    kv = new_kv(9, dtype)
    sequences = [(37, 30, [3, 0, 7]), (16, 16, [5]), (50, 20, [1, 8, 2, 6])]  # context, rows, tiles
    stored = [fill(kv, n, tiles, seed=i) for i, (n, _, tiles) in enumerate(sequences)]
    runs = [Run(range(rows), n - rows, tiles) for n, rows, tiles in sequences]
    q = normal(66, SHAPE.num_heads * SHAPE.head_dim, seed=9)
    got = OPS.paged_attention(q, 1, make_batch(OPS, kv, runs), SHAPE)
    row = 0
    for (n, rows, tiles), (k, v), run in zip(sequences, stored, runs, strict=True):
        own = q[row : row + rows].reshape(rows, SHAPE.num_heads, SHAPE.head_dim)
        expected = dense(own, k, v, n - rows).reshape(rows, -1)
        np.testing.assert_allclose(got[row : row + rows], expected, atol=2e-6)
        alone = OPS.paged_attention(q[row : row + rows], 1, make_batch(OPS, kv, [run]), SHAPE)
        np.testing.assert_array_equal(got[row : row + rows], alone)
        for t in range(rows):  # each row by itself, when the context was shorter
            one = make_batch(OPS, kv, [Run([0], n - rows + t, tiles)])
            single = OPS.paged_attention(q[row + t : row + t + 1], 1, one, SHAPE)
            np.testing.assert_array_equal(got[row + t], single[0])
        row += rows


def test_copy_tiles_copies_bytes_in_order() -> None:
    kv = new_kv(4, "float16")
    kv[0], kv[1] = 1, 2
    OPS.copy_tiles(kv, np.array([0, 2], np.int32), np.array([2, 1], np.int32))
    assert (kv[1] == 1).all()
    assert (kv[2] == 1).all()
    assert np.isnan(kv[3]).all()


@pytest.mark.parametrize("format", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_embedding_rows_are_those_of_the_whole_table(format: str) -> None:
    values = normal(40, 64)
    weight = quantize(from_float32("t", values), format)
    rows = OPS.embedding(OPS.prepare_table(weight), np.array([3, 39, 3], np.int32))
    np.testing.assert_array_equal(rows, dequantize(weight)[[3, 39, 3]])
    steps = {"F32": 0, "F16": 2e-3, "BF16": 0.02, "Q8_0": 0.03, "Q5_0": 0.25, "Q5_1": 0.15}
    np.testing.assert_allclose(dequantize(weight), values, atol=steps.get(format, 0.5))


def test_dequantize_reads_unaligned_data() -> None:
    raw = np.frombuffer(b"x" + np.arange(6, dtype="<f4").tobytes(), np.uint8)[1:].reshape(2, 12)
    np.testing.assert_array_equal(
        dequantize(WeightTensor("w", (2, 3), "F32", raw)), np.arange(6.0).reshape(2, 3)
    )


def test_dequantize_names_the_tensor_it_refuses() -> None:
    data = np.zeros((2, 18), np.uint8)
    with pytest.raises(UnsupportedModelError, match=r"blk.*Q9_9"):
        dequantize(WeightTensor("blk", (2, 32), "Q9_9", data))
    with pytest.raises(MalformedModelError, match=r"blk.*36 bytes"):
        dequantize(WeightTensor("blk", (3, 32), "Q4_0", data))
    with pytest.raises(MalformedModelError, match="groups"):
        dequantize(WeightTensor("blk", (2, 33), "Q4_0", data))

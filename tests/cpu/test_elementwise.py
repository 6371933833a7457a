"""RMSNorm, SiLU gate and tile copies on the native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.cpu import CpuOps
from tests.cpu.paged import AVAILABLE

isas = pytest.mark.parametrize("isa", AVAILABLE)
ULP = 2.0**-23


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- RMSNorm


@isas
@pytest.mark.parametrize("size", [1, 7, 16, 63, 64, 100, 576, 2049])
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(isa, size, with_residual):
    x, weight, eps = normal(5, size), normal(size, seed=1), 1e-5
    residual = normal(5, size, seed=2) * 10
    before = residual.copy()
    out = CpuOps(2, isa).rms_norm(x, weight, eps, residual if with_residual else None)
    if with_residual:
        np.testing.assert_array_equal(residual, before + x)
    total = (residual if with_residual else x).astype(np.float64)
    expected = total / np.sqrt((total**2).mean(-1, keepdims=True) + eps) * weight
    np.testing.assert_allclose(out, expected, rtol=8 * ULP, atol=1e-30)


@isas
def test_rms_norm_rows_stand_alone(isa):
    """The same bits for a row alone and among others, with any number of threads."""
    x, weight = normal(300, 576), normal(576, seed=1)
    residual = normal(300, 576, seed=2)
    alone = []
    for i in range(300):
        row = residual[i : i + 1].copy()
        alone.append(CpuOps(1, isa).rms_norm(x[i : i + 1], weight, 1e-5, row))
    for threads in (1, 2, 3):
        together = CpuOps(threads, isa).rms_norm(x, weight, 1e-5, residual.copy())
        np.testing.assert_array_equal(together, np.concatenate(alone))


@isas
def test_rms_norm_of_zeros_and_nan(isa):
    x = np.zeros((2, 20), np.float32)
    x[1, 3] = np.nan
    out = CpuOps(1, isa).rms_norm(x, np.ones(20, np.float32), 1e-6)
    assert (out[0] == 0).all()
    assert np.isnan(out[1]).all()


# ---- SiLU


def silu_mul_64(gate_up: np.ndarray) -> np.ndarray:
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-gate)) * up


@isas
def test_silu_mul_is_accurate(isa):
    """About two units in the last place over all that exp can meet (three where there is no fused multiply-add)."""
    gate = np.concatenate([np.linspace(-87, 100, 200_001), np.geomspace(1e-30, 1, 1001), [0.0]])
    gate_up = np.stack([gate, np.ones_like(gate)]).astype(np.float32).reshape(1, -1)
    out = CpuOps(2, isa).silu_mul(gate_up)
    np.testing.assert_allclose(out, silu_mul_64(gate_up), rtol=3 * ULP, atol=0)


@isas
@pytest.mark.parametrize("size", [1, 15, 16, 17, 1536, 5000])
def test_silu_mul_rows_stand_alone(isa, size):
    gate_up = normal(70, 2 * size) * 4
    expected = np.concatenate([CpuOps(1, isa).silu_mul(row[None]) for row in gate_up])
    np.testing.assert_allclose(expected, silu_mul_64(gate_up), rtol=4 * ULP, atol=0)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(CpuOps(threads, isa).silu_mul(gate_up), expected)


@isas
def test_silu_mul_at_the_ends(isa):
    gate = np.array([np.inf, 3e38, 89, -88, -104, -3e38, np.nan, -0.0], np.float32)
    out = CpuOps(1, isa).silu_mul(np.concatenate([gate, np.ones_like(gate)])[None])[0]
    np.testing.assert_array_equal(out[:3], [np.inf, np.float32(3e38), 89])
    assert (np.abs(out[3:6]) < 1e-35).all()
    assert np.isnan(out[6])
    assert out[7] == 0


def test_sets_agree_where_both_fuse():
    if "avx512" not in AVAILABLE:
        pytest.skip("needs a machine with AVX2 and AVX-512")
    x, gate_up = normal(9, 580), normal(9, 580, seed=1) * 9
    narrow, wide = CpuOps(1, "avx2"), CpuOps(1, "avx512")
    np.testing.assert_array_equal(narrow.silu_mul(gate_up), wide.silu_mul(gate_up))
    weight = normal(580, seed=2)
    np.testing.assert_array_equal(narrow.rms_norm(x, weight, 1e-6), wide.rms_norm(x, weight, 1e-6))


# ---- copies


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8])
@pytest.mark.parametrize("shape", [(9, 2, 2, 1, 16 * 16), (9, 7, 2, 3, 64 * 16)])
def test_copies_happen_in_order(threads, dtype, shape):
    kv = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    src = np.array([0, 1, 1, 4, 8, 5, 3], np.int32)
    dst = np.array(
        [1, 2, 3, 4, 0, 8, 8], np.int32
    )  # 1 is written, then read; 8 is read, then written twice
    expected = kv.copy()
    for a, b in zip(src, dst, strict=True):
        expected[b] = expected[a]
    CpuOps(threads).copy_tiles(kv, src, dst)
    np.testing.assert_array_equal(kv, expected)


def test_no_copies():
    kv = np.zeros((2, 3), np.float32)
    CpuOps(2).copy_tiles(kv, np.empty(0, np.int32), np.empty(0, np.int32))


# ---- what does not fit

OPS = CpuOps(2)
KV = np.zeros((4, 8), np.float16)
ONE, FOUR = np.array([1], np.int32), np.array([4], np.int32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OPS.rms_norm(normal(8), normal(8), 1e-5), r"x: .* \[any, any\], got float32 \[8\]"),
        (lambda: OPS.rms_norm(normal(2, 8), normal(7), 1e-5), r"weight: .* \[8\], got float32 \[7\]"),
        (lambda: OPS.rms_norm(normal(2, 8).astype(np.float16), normal(8), 1e-5), "x: .* float32 .* float16"),
        (lambda: OPS.rms_norm(normal(2, 8), normal(8), 1e-5, normal(3, 8)), r"residual: .* \[2, 8\], .* \[3, 8\]"),
        (lambda: OPS.rms_norm(normal(8, 2).T, normal(8), 1e-5), r"x: .* \[2, 8\], not C-contiguous"),
        (lambda: OPS.silu_mul(normal(2, 7)), r"gate_up: .* \[2, 6\], got float32 \[2, 7\]"),
        (lambda: OPS.silu_mul(normal(2, 8).astype(np.float64)), "got float64"),
        (lambda: OPS.copy_tiles(KV, FOUR, ONE), "expected src from 0 to 3, got 4 at index 0"),
        (lambda: OPS.copy_tiles(KV, ONE, -ONE), "expected dst from 0 to 3, got -1 at index 0"),
        (lambda: OPS.copy_tiles(KV, ONE, np.array([1, 2], np.int32)), r"dst: .* \[1\], got int32 \[2\]"),
        (lambda: OPS.copy_tiles(KV, ONE.astype(np.int64), ONE), "src: .* int32 .* int64"),
        (lambda: OPS.copy_tiles(KV[:, ::2], ONE, ONE), "not C-contiguous"),
    ],
)  # fmt: skip
def test_calls_that_do_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    assert not KV.any()

"""Linear maps of the CPU op set: the numbers, for every format and instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.linear_cases import (
    FLOATS,
    QUANTS,
    TYPES,
    expected,
    numbers,
    random_rows,
    random_weight,
)

native = pytest.importorskip("octavo._native", reason="the native kernels are not built")

from octavo.errors import MalformedModelError, UnsupportedModelError  # noqa: E402
from octavo.ops.base import WeightTensor  # noqa: E402
from octavo.ops.cpu import CpuOps  # noqa: E402

ISAS = ("portable", "avx2", "avx512", "avx512bf16")
K = 512


@pytest.fixture(params=ISAS)
def ops(request: pytest.FixtureRequest) -> CpuOps:
    if ISAS.index(request.param) > ISAS.index(native.best_isa()):
        pytest.skip(f"this machine has no {request.param}")
    return CpuOps(2, request.param)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("num_outputs", [1, 16, 45, 100])
def test_agrees_with_float64(ops: CpuOps, type: str, num_outputs: int) -> None:
    weight = random_weight(type, num_outputs, K, seed=num_outputs)
    linear = ops.prepare_linear([weight])
    for num_rows in (1, 2, 3, 7, 16, 33):
        x = random_rows(num_rows, K, seed=num_rows)
        want, magnitude = expected([weight], x)
        assert np.all(np.abs(ops.linear(x, linear) - want) <= 2e-6 * magnitude)


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize("k", [1, 3, 50, 333])
def test_float_weights_of_any_width(ops: CpuOps, type: str, k: int) -> None:
    weight = random_weight(type, 70, k, seed=k)
    x = random_rows(11, k, seed=1)
    want, magnitude = expected([weight], x)
    got = ops.linear(x, ops.prepare_linear([weight]))
    assert np.all(np.abs(got - want) <= 2e-6 * magnitude)


def test_bias_and_mixed_types_stacked(ops: CpuOps) -> None:
    parts = [random_weight(type, 20 + i, K, seed=i) for i, type in enumerate(TYPES)]
    num_outputs = sum(p.shape[0] for p in parts)
    bias = random_rows(1, num_outputs, seed=3)[0]
    x = random_rows(19, K, seed=2)
    want, magnitude = expected(parts, x, bias)
    got = ops.linear(x, ops.prepare_linear(parts), bias)
    assert got.shape == (19, num_outputs)
    assert got.dtype == np.float32
    assert np.all(np.abs(got - want) <= 2e-6 * (magnitude + np.abs(bias)))


@pytest.mark.parametrize("type", QUANTS)
def test_rounding_rows_costs_little(ops: CpuOps, type: str) -> None:
    weight = random_weight(type, 64, K, seed=5)
    x = random_rows(8, K, seed=6)
    exact = x.astype(np.float64) @ numbers(weight).astype(np.float64).T
    got = ops.linear(x, ops.prepare_linear([weight]))
    assert np.linalg.norm(got - exact) < 0.01 * np.linalg.norm(exact)


def test_rows_that_cannot_be_quantised(ops: CpuOps) -> None:
    linear = ops.prepare_linear([random_weight("Q4_1", 32, K, seed=1)])
    x = random_rows(4, K, seed=1)
    x[0] = 0
    x[1] *= np.float32(1e-37)  # 127 / such numbers would overflow
    x[2, 7] = np.inf
    x[3, 9] = np.nan
    with np.errstate(all="ignore"):
        got = ops.linear(x, linear)
    assert np.all(got[0] == 0)
    assert np.all(np.abs(got[1]) < 1e-30)
    assert np.all(np.isnan(got[2:]))


def test_largest_sums_do_not_overflow(ops: CpuOps) -> None:
    for type, block in [
        ("Q8_0", b"\x00\x3c" + b"\x80" * 32),  # scale 1, weights -128
        ("Q4_1", b"\x00\x3c\x00\x00" + b"\xff" * 16),  # scale 1, minimum 0, weights 15
        ("Q5_1", b"\x00\x3c\x00\x00" + b"\xff" * 20),  # ... 31
    ]:
        data = np.frombuffer(block * 64 * 16, np.uint8).reshape(16, -1)
        weight = WeightTensor("w", (16, 2048), type, data)
        x = np.ones((3, 2048), np.float32)
        x[1] = -1
        want = x.astype(np.float64) @ numbers(weight).astype(np.float64).T
        got = ops.linear(x, ops.prepare_linear([weight]))
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_rounds_to_even(ops: CpuOps) -> None:
    weight = random_weight("F32", 1, 32, seed=0)
    row = np.zeros((1, 32), np.float32)
    row[0, :4] = [127, 2.5, 3.5, -2.5]  # scale 1
    ones = WeightTensor(
        "w",
        (1, 32),
        "Q8_0",
        np.frombuffer(b"\x00\x3c" + bytes([0, 1, 1, 1] + [0] * 28), np.uint8)[None],
    )
    assert weight.shape == ones.shape
    assert ops.linear(row, ops.prepare_linear([ones]))[0, 0] == 2 + 4 - 2


@pytest.mark.parametrize("type", TYPES)
def test_embedding_dequantises_exactly(ops: CpuOps, type: str) -> None:
    weight = random_weight(type, 50, K, seed=9)
    table = ops.prepare_table(weight)
    ids = np.array([0, 49, 7, 7, 31], np.int32)
    np.testing.assert_array_equal(ops.embedding(table, ids), numbers(weight)[ids])
    np.testing.assert_array_equal(
        ops.prepare_vector(WeightTensor("v", (K,), type, weight.data[:1])), numbers(weight)[0]
    )


def test_embedding_refuses_ids_outside_the_table(ops: CpuOps) -> None:
    table = ops.prepare_table(random_weight("Q8_0", 50, K, seed=9))
    for bad in (50, -1):
        with pytest.raises(IndexError, match=f"token id {bad} at position 1: expected 0 to 49"):
            ops.embedding(table, np.array([3, bad], np.int32))
    with pytest.raises(ValueError, match="expected token_ids int32"):
        ops.embedding(table, np.array([3], np.int64))  # type: ignore[arg-type]


def test_bad_arrays_are_refused(ops: CpuOps) -> None:
    linear = ops.prepare_linear([random_weight("Q4_0", 24, K, seed=1)])
    x = random_rows(4, K, seed=1)
    with pytest.raises(ValueError, match="expected 512, got 256"):
        ops.linear(np.ascontiguousarray(x[:, :256]), linear)
    with pytest.raises(ValueError, match=r"expected x float32 \[T, 512\].*float64"):
        ops.linear(x.astype(np.float64), linear)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not C-contiguous"):
        ops.linear(np.asfortranarray(x), linear)
    with pytest.raises(ValueError, match=r"got x float32 \[512\]"):
        ops.linear(x[0], linear)
    with pytest.raises(ValueError, match="length of bias: expected 24, got 23"):
        ops.linear(x, linear, np.zeros(23, np.float32))
    assert ops.linear(x[:0], linear).shape == (0, 24)


def test_bad_weights_are_refused(ops: CpuOps) -> None:
    good = random_weight("Q8_0", 20, K, seed=1)
    with pytest.raises(UnsupportedModelError, match="got 'IQ2_XS'"):
        ops.prepare_linear([WeightTensor("w", good.shape, "IQ2_XS", good.data)])
    with pytest.raises(UnsupportedModelError, match="multiple of 256 weights, got 511"):
        ops.prepare_linear([WeightTensor("w", (20, 511), "Q6_K", good.data)])
    with pytest.raises(MalformedModelError, match="tensor w: expected 10880 bytes"):
        ops.prepare_linear([WeightTensor("w", good.shape, "Q8_0", good.data[:, :-1])])
    with pytest.raises(ValueError, match="matrices of one width"):
        ops.prepare_linear([good, random_weight("Q8_0", 20, 256, seed=1)])


@pytest.mark.parametrize(
    ("type", "at", "bits"), [("Q4_1", 2, b"\x00\x7e"), ("F32", 4, b"\x00\x00\x80\x7f")]
)
def test_weights_that_are_not_numbers_are_refused(
    ops: CpuOps, type: str, at: int, bits: bytes
) -> None:
    weight = random_weight(type, 20, K, seed=1)
    data = weight.data.copy()
    data[17, at : at + len(bits)] = np.frombuffer(bits, np.uint8)
    with pytest.raises(MalformedModelError, match=r"tensor blk\.1: .* holds an infinity or NaN"):
        ops.prepare_linear([WeightTensor("blk.1", weight.shape, type, data)])

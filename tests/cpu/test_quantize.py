"""The native quantiser gives the bytes of gguf's, from every float format."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.base import WeightTensor
from octavo.ops.formats import dequantize, from_float32, quantize

pytest.importorskip("octavo._native", reason="the native kernels are not built")

from octavo.ops.cpu import CpuOps


def numbers(rows: int, columns: int) -> np.ndarray:
    """Rows of every size, from below the smallest scale that float16 holds up to near its largest."""
    rng = np.random.default_rng(5)
    size = np.exp2(np.linspace(-20, 12, rows))[:, None]
    x = (rng.standard_normal((rows, columns)) * size).astype(np.float32)
    x[3] = 0
    x[5] = 0.75  # no spread
    x[7] = np.abs(x[7])
    x[9, ::2] = -x[9, 1::2]
    x[11] = np.round(x[11] / size[11] * 8) / 8 * 0.5  # many ties
    return x


@pytest.mark.parametrize("to", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("format", ["F32", "F16", "BF16"])
def test_same_bytes_as_gguf(format: str, to: str) -> None:
    weight = from_float32("w", numbers(70, 224))
    if format != "F32":
        weight = quantize(weight, format)
    expected = quantize(weight, to)
    for threads in (1, 3):
        got = CpuOps(threads).quantize(weight, to)
        assert (got.type, got.shape) == (to, weight.shape)
        np.testing.assert_array_equal(got.data, expected.data)


@pytest.mark.parametrize("to", ["Q8_0", "Q4_1"])
def test_tiny_and_huge_numbers(to: str) -> None:
    """Below float16's scales all is 0; above them a scale is infinite, which packing refuses."""
    rng = np.random.default_rng(6)
    tiny = rng.standard_normal((4, 64)).astype(np.float32) * np.float32(1e-39)
    assert not dequantize(CpuOps(2).quantize(from_float32("w", tiny), to)).any()
    huge = CpuOps(2).quantize(from_float32("w", tiny * np.float32(1e38) * np.float32(1e9)), to)
    assert np.isinf(huge.data[:, :2].copy().view(np.float16)).all()


def test_what_cannot_be_is_refused() -> None:
    ops = CpuOps(1)
    with pytest.raises(ValueError, match="multiple of 32 weights, got 48"):
        ops.quantize(from_float32("w", np.ones((2, 48), np.float32)), "Q8_0")
    with pytest.raises(ValueError, match=r"Q8_0 or Q4_1 to become; got F32 .* Q5_0"):
        ops.quantize(from_float32("w", np.ones((2, 64), np.float32)), "Q5_0")
    quantised = quantize(from_float32("w", np.ones((2, 64), np.float32)), "Q4_0")
    assert isinstance(quantised, WeightTensor)
    with pytest.raises(ValueError, match="got Q4_0 rows"):
        ops.quantize(quantised, "Q8_0")

"""Weights for the tests of linear maps, and what the kernels should make of them, in numpy."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt

from octavo.ops.base import F32, WeightTensor

FLOATS = ("F32", "F16", "BF16")
QUANTS = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
TYPES = FLOATS + QUANTS

# Where a block's float16 scales lie. gguf cannot quantise to the K formats: their blocks are random bytes.
_HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}

F64 = npt.NDArray[np.float64]


def random_weight(type: str, num_outputs: int, k: int, seed: int) -> WeightTensor:
    rng = np.random.default_rng(seed)
    kind = gguf.GGMLQuantizationType[type]
    if type in _HALVES:
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (num_outputs, k // weights, size), dtype=np.uint8)
        for at in _HALVES[type]:
            halves = rng.normal(0, 0.01, blocks.shape[:2]).astype(np.float16)
            blocks[:, :, at : at + 2] = halves[..., None].view(np.uint8)
        data = blocks.reshape(num_outputs, -1)
    else:
        values = rng.normal(0, 1, (num_outputs, k)).astype(np.float32)
        values[rng.random((num_outputs, k)) < 0.01] *= 20  # groups of unequal range
        data = gguf.quants.quantize(values, kind).view(np.uint8).reshape(num_outputs, -1)
    return WeightTensor(f"{type}.weight", (num_outputs, k), type, data)


def numbers(weight: WeightTensor) -> F32:
    kind = gguf.GGMLQuantizationType[weight.type]
    values = gguf.quants.dequantize(weight.data, kind)
    return np.asarray(values, np.float32).reshape(weight.shape)


def random_rows(num_rows: int, k: int, seed: int) -> F32:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (num_rows, k)) * rng.lognormal(0, 1, (num_rows, 1))
    return np.ascontiguousarray(x, dtype=np.float32)


def quantized_rows(x: F32) -> tuple[F64, F64]:
    """(integers [T, K/32, 32], scales [T, K/32, 1]) of the rows, as the kernels round them."""
    groups = x.reshape(len(x), -1, 32)
    amax = np.abs(groups).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(amax > 0, np.float32(127) / amax, np.float32(0))
    return np.rint(groups * inverse).astype(np.float64), (amax / np.float32(127)).astype(np.float64)


def expected(weights: list[WeightTensor], x: F32, bias: F32 | None = None) -> tuple[F64, F64]:
    """([T, N], [T, N]): the sums in float64, and the sums of magnitudes, which rounding errors are relative to."""
    q, scale = quantized_rows(x) if x.shape[1] % 32 == 0 else (None, None)
    sums, magnitudes = [], []
    for weight in weights:
        rows = x.astype(np.float64)
        if weight.type not in FLOATS:
            assert q is not None
            assert scale is not None
            rows = (q * scale).reshape(x.shape)
        values = numbers(weight).astype(np.float64)
        sums.append(rows @ values.T)
        magnitudes.append(np.abs(rows) @ np.abs(values).T)
    total = np.concatenate(sums, axis=1)
    return total if bias is None else total + bias, np.concatenate(magnitudes, axis=1)

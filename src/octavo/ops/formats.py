"""Weights between their formats and float32 numbers, by the gguf package."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.ops.base import F32, I32, WeightTensor

FLOAT_FORMATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class WeightTable:
    """An embedding table [V, H] as it lies in its file; rows become float32 when they are asked for."""

    weight: WeightTensor

    def rows(self, ids: I32) -> F32:
        """int [T] -> float32 [T, H]."""
        w = self.weight
        return dequantize(WeightTensor(w.name, (len(ids), w.shape[1]), w.type, w.data[ids]))


def dequantize(weight: WeightTensor) -> F32:
    """The weight's numbers, float32 of its shape; a view of its data where that can be.

    Raises UnsupportedModelError for a format without numbers, MalformedModelError if the bytes do not fit the shape.
    """
    import gguf

    try:
        format = gguf.GGMLQuantizationType[weight.type]
        group, group_bytes = gguf.GGML_QUANT_SIZES[format]
    except KeyError:
        raise UnsupportedModelError(
            f"tensor {weight.name}: {weight.type!r} is not a tensor type of GGUF"
        ) from None
    num_weights = math.prod(weight.shape)
    if weight.shape[-1] % group or weight.data.nbytes != num_weights // group * group_bytes:
        raise MalformedModelError(
            f"tensor {weight.name}: expected rows of whole {weight.type} groups ({group} weights in "
            f"{group_bytes} bytes) for the shape {list(weight.shape)}, got {weight.data.nbytes} bytes"
        )
    if num_weights == 0:
        return np.empty(weight.shape, np.float32)
    raw = np.ascontiguousarray(weight.data).reshape(-1, weight.data.shape[-1])
    if (
        raw.ctypes.data % 4
    ):  # a file may place a tensor anywhere; a view as float32 has to be aligned
        raw = raw.copy()
    return np.asarray(gguf.quants.dequantize(raw, format), np.float32).reshape(weight.shape)


def from_float32(name: str, values: F32) -> WeightTensor:
    """float32 numbers, a matrix or a vector, as an F32 weight."""
    data = np.ascontiguousarray(values, dtype=np.float32).view(np.uint8)
    return WeightTensor(name, values.shape, "F32", np.atleast_2d(data))


def quantize(weight: WeightTensor, format: str) -> WeightTensor:
    """The weight in another format (Q8_0, Q4_0, Q4_1, ...). Its row must be whole groups of it."""
    import gguf

    data = gguf.quants.quantize(dequantize(weight), gguf.GGMLQuantizationType[format])
    return WeightTensor(weight.name, weight.shape, format, np.atleast_2d(data.view(np.uint8)))

"""Weight formats: what the supported ones are, and their numbers as float32 (by the gguf package)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.ops.base import F32, I32, WeightTensor

GROUPS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
"""Format name -> (weights in a group, bytes of a group)."""

FLOAT_FORMATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class WeightTable:
    """An embedding table [V, H] as it lies in its file; rows are dequantised when they are asked for."""

    weight: WeightTensor

    def rows(self, ids: I32) -> F32:
        """int [T] -> float32 [T, H]."""
        w = self.weight
        picked = WeightTensor(w.name, (len(ids), w.shape[1]), w.type, w.data[ids])
        return dequantize(picked)


def row_bytes(num_columns: int, format: str) -> int:
    """Bytes of a row of `num_columns` weights.

    Raises UnsupportedModelError for a format that is not known or a row that is not whole groups.
    """
    if format not in GROUPS:
        raise UnsupportedModelError(
            f"expected a tensor type among {' '.join(GROUPS)}, got {format}; "
            "convert the model to one of these"
        )
    weights, size = GROUPS[format]
    if num_columns % weights:
        raise UnsupportedModelError(
            f"{format} holds weights in groups of {weights}: a row of {num_columns} does not divide"
        )
    return num_columns // weights * size


def check_weight(weight: WeightTensor) -> None:
    """Raise UnsupportedModelError or MalformedModelError, naming the tensor, if it does not hold together."""
    try:
        size = row_bytes(weight.shape[-1], weight.type)
    except UnsupportedModelError as e:
        raise UnsupportedModelError(f"tensor {weight.name}: {e}") from None
    expected = math.prod(weight.shape[:-1]) * size
    if weight.data.nbytes != expected:
        raise MalformedModelError(
            f"tensor {weight.name}: expected {expected} bytes for {weight.type} of shape "
            f"{list(weight.shape)}, got {weight.data.nbytes}"
        )


def dequantize(weight: WeightTensor) -> F32:
    """The weight's numbers, float32 of its shape (may be a view of its data). Errors: see check_weight."""
    import gguf

    check_weight(weight)
    raw = np.ascontiguousarray(weight.data).reshape(-1, weight.data.shape[-1])
    if raw.ctypes.data % 4:  # a view as float32 has to be aligned
        raw = raw.copy()
    with np.errstate(invalid="ignore", over="ignore"):  # NaN scales are told apart by the loader
        values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[weight.type])
    return np.asarray(values, dtype=np.float32).reshape(weight.shape)


def from_float32(name: str, values: F32) -> WeightTensor:
    """float32 numbers, a matrix or a vector, as an F32 weight."""
    data = np.ascontiguousarray(values, dtype=np.float32).view(np.uint8)
    return WeightTensor(name, values.shape, "F32", np.atleast_2d(data))


def quantize(weight: WeightTensor, format: str) -> WeightTensor:
    """The weight in another format (Q8_0, Q4_0, Q4_1, ...). Its row must be whole groups of it."""
    import gguf

    row_bytes(weight.shape[-1], format)
    data = gguf.quants.quantize(dequantize(weight), gguf.GGMLQuantizationType[format])
    return WeightTensor(weight.name, weight.shape, format, np.atleast_2d(data.view(np.uint8)))

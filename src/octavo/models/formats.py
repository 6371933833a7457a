"""Tensor formats, and the check that their numbers are numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.ops.base import WeightTensor

_F16_EXPONENT = 0x7C00
_CHUNK = 1 << 18
"""Numbers checked at a time: temporaries stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a tensor lies in memory.

    `ggml_id`: its number in GGUF files. A row is cut into blocks of `block` elements, `block_bytes` bytes each;
    `scales`: byte offsets of the float16 numbers in a block of a quantised type.
    """

    name: str
    ggml_id: int
    block: int
    block_bytes: int
    scales: tuple[int, ...] = ()


FORMATS = {
    f.name: f
    for f in (
        Format("F32", 0, 1, 4),
        Format("F16", 1, 1, 2),
        Format("BF16", 30, 1, 2),
        Format("Q8_0", 8, 32, 34, (0,)),
        Format("Q4_0", 2, 32, 18, (0,)),
        Format("Q4_1", 3, 32, 20, (0, 2)),
        Format("Q5_0", 6, 32, 22, (0,)),
        Format("Q5_1", 7, 32, 24, (0, 2)),
        Format("Q4_K", 12, 256, 144, (0, 2)),
        Format("Q5_K", 13, 256, 176, (0, 2)),
        Format("Q6_K", 14, 256, 210, (208,)),
    )
}
"""Every supported tensor type by its name."""

FORMATS_BY_ID = {f.ggml_id: f for f in FORMATS.values()}

FLOAT_FORMATS = ("F32", "F16", "BF16")


def unsupported_type(source: str, tensor: str, type_name: str) -> UnsupportedModelError:
    """The error for a tensor whose type Octavo cannot read."""
    return UnsupportedModelError(
        f"{source}: tensor {tensor!r} has type {type_name}, which is not supported; "
        f"supported: {' '.join(FORMATS)}"
    )


def row_bytes(type_name: str, num_elements: int) -> int | None:
    """Bytes of a row of `num_elements`, or None if they do not fill whole blocks of the type."""
    form = FORMATS[type_name]
    blocks, rest = divmod(num_elements, form.block)
    return None if rest else blocks * form.block_bytes


def check_finite(weight: WeightTensor, source: str = "model") -> None:
    """Raise MalformedModelError if a number or a scale of the tensor is NaN or infinite.

    Complete: it looks at every float element, and at every float16 scale of a quantised type. Reads the tensor once;
    NumPy releases the GIL, so threads that load tensors can each check their own.
    """
    form = FORMATS[weight.type]
    flat = weight.data.reshape(-1)
    if form.scales:
        num_blocks = flat.size // form.block_bytes
        for offset in form.scales:
            scales = np.ndarray((num_blocks,), "<u2", flat, offset, (form.block_bytes,))
            _check_exponents(scales, _F16_EXPONENT, weight, form, source)
        return
    dtype, exponent = {
        "F32": ("<u4", 0x7F800000),
        "F16": ("<u2", _F16_EXPONENT),
        "BF16": ("<u2", 0x7F80),
    }[weight.type]
    _check_exponents(flat.view(dtype), exponent, weight, form, source)


def _check_exponents(
    bits: np.ndarray[tuple[int], np.dtype[np.unsignedinteger]],
    exponent: int,
    weight: WeightTensor,
    form: Format,
    source: str,
) -> None:
    """NaN and infinity are the floats whose exponent bits are all ones."""
    mask = bits.dtype.type(exponent)
    for start in range(0, bits.size, _CHUNK):
        part = bits[start : start + _CHUNK] & mask
        if part.size and part.max() == mask:
            index = (start + int(part.argmax())) * form.block
            columns = weight.shape[-1]
            what = "scale" if form.scales else "value"
            raise MalformedModelError(
                f"{source}: tensor {weight.name!r}: expected finite numbers, got a NaN or infinite {what} "
                f"in row {index // columns}, column {index % columns}; the file is damaged, fetch it again"
            )

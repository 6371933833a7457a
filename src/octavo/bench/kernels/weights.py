"""Random weights in GGUF's formats, made as fast as bytes can be drawn."""

from __future__ import annotations

import numpy as np

from octavo.ops.base import WeightTensor

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")

# Where a block holds its float16 scales (and minima); the rest of it may be any bytes.
_SCALES = {
    "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip

DISTINCT_ROWS = 256
"""Rows that are drawn; more are the same again. A kernel cannot tell."""


def random_weight(name: str, type: str, outputs: int, inputs: int) -> WeightTensor:
    """A matrix [outputs, inputs]. ValueError for inputs that are no whole blocks of the type."""
    rng = np.random.default_rng(len(name) + outputs + inputs)
    rows = min(outputs, DISTINCT_ROWS)
    if type in ("F32", "F16", "BF16"):
        values = rng.standard_normal((rows, inputs), np.float32) / np.float32(inputs**0.5)
        if type == "F16":
            data = values.astype(np.float16).view(np.uint8)
        elif type == "BF16":
            data = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        else:
            data = values.view(np.uint8)
    else:
        data = _random_blocks(type, rows, inputs, rng)
    repeated = np.resize(data, (outputs, data.shape[1]))
    return WeightTensor(name, (outputs, inputs), type, repeated)


def _random_blocks(
    type: str, rows: int, inputs: int, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    import gguf

    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type]]
    if inputs % block:
        raise ValueError(f"{type}: expected inputs in blocks of {block}, got {inputs}")
    data = rng.integers(0, 256, (rows, inputs // block, block_bytes), np.uint8)
    scale = np.array([1 / 512], np.float16).view(np.uint8)
    for at in _SCALES[type]:
        data[:, :, at : at + 2] = scale
    return data.reshape(rows, -1)

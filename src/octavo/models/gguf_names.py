"""GGUF tensors under Octavo's names, and those that are settings rather than weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.models.names import name_from_gguf
from octavo.ops.base import WeightTensor

ROPE_FREQS = "rope_freqs.weight"
_COMPUTED = ("attn_rot_embd.weight", "attn_rotary_emb.inv_freq")
"""Tables that old converters stored and that every loader computes anew."""


def rename_gguf(tensors: Mapping[str, WeightTensor], source: str) -> dict[str, WeightTensor]:
    """GGUF's tensors by Hugging Face's names.

    Raises UnsupportedModelError for one whose part in the model is not known.
    """
    renamed: dict[str, WeightTensor] = {}
    for name, weight in tensors.items():
        canonical = name_from_gguf(name)
        if canonical is not None:
            renamed[canonical] = replace(weight, name=canonical)
        elif name != ROPE_FREQS and not name.endswith(_COMPUTED):
            raise UnsupportedModelError(
                f"{source}: tensor {name!r} is not a part that Octavo knows; the model is a variant "
                "that is not supported"
            )
    return renamed


def rope_factors(tensors: Mapping[str, WeightTensor], source: str) -> tuple[float, ...] | None:
    """rope_freqs.weight: divisors of the rotary frequencies, one for each pair of dimensions."""
    weight = tensors.get(ROPE_FREQS)
    if weight is None:
        return None
    if weight.type != "F32" or len(weight.shape) != 1:
        raise MalformedModelError(
            f"{source}: tensor {ROPE_FREQS!r}: expected an F32 vector, "
            f"got {weight.type} {list(weight.shape)}"
        )
    values = weight.data.reshape(-1).view(np.float32)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise MalformedModelError(
            f"{source}: tensor {ROPE_FREQS!r}: expected finite numbers above zero"
        )
    return tuple(float(v) for v in values)

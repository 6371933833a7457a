"""Which family file builds which models."""

from __future__ import annotations

from collections.abc import Callable

from octavo.errors import UnsupportedModelError
from octavo.models import llama, qwen2, qwen3
from octavo.models.decoder import DecoderLayer
from octavo.models.layer_weights import LayerWeights
from octavo.models.spec import ModelSpec

LayerLoader = Callable[[ModelSpec, LayerWeights], DecoderLayer]

FAMILIES: dict[str, LayerLoader] = {
    "llama": llama.load_layer,
    "qwen2": qwen2.load_layer,
    "qwen3": qwen3.load_layer,
}
"""ModelSpec.family -> what builds a layer from its tensors."""


def layer_loader(family: str) -> LayerLoader:
    """The family's function. Raises UnsupportedModelError with the list of families."""
    if family not in FAMILIES:
        raise UnsupportedModelError(
            f"model family {family!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    return FAMILIES[family]

"""Qwen3: Llama's layer, and each head of q and k is normalised before the rotation."""

from __future__ import annotations

from dataclasses import replace

from octavo.models import llama
from octavo.models.decoder import DecoderLayer
from octavo.models.layer_weights import LayerWeights
from octavo.models.spec import ModelSpec


def load_layer(spec: ModelSpec, weights: LayerWeights) -> DecoderLayer:
    """One layer from its tensors."""
    return replace(
        llama.load_layer(spec, weights),
        q_norm=weights.vector("self_attn.q_norm.weight"),
        k_norm=weights.vector("self_attn.k_norm.weight"),
    )

"""Qwen2 and Qwen2.5: q, k and v have biases, nothing else has."""

from __future__ import annotations

from octavo.models.decoder import DecoderLayer
from octavo.models.layer_weights import Weights


def load_layer(weights: Weights) -> DecoderLayer:
    """One layer from its tensors."""
    hidden = weights.spec.hidden_size
    return DecoderLayer(
        attention_norm=weights.vector("input_layernorm.weight", hidden),
        qkv=weights.qkv(bias=True),
        o=weights.output(bias=False),
        mlp_norm=weights.vector("post_attention_layernorm.weight", hidden),
        gate_up=weights.gate_up(bias=False),
        down=weights.down(bias=False),
    )

"""Llama family: Llama 2 and 3, SmolLM2, TinyLlama, Mistral."""

from __future__ import annotations

from octavo.models.decoder import DecoderLayer
from octavo.models.layer_weights import Weights


def load_layer(weights: Weights) -> DecoderLayer:
    """One layer from its tensors. Biases as the settings say (attention_bias, mlp_bias); most models have none."""
    spec = weights.spec
    return DecoderLayer(
        attention_norm=weights.vector("input_layernorm.weight", spec.hidden_size),
        qkv=weights.qkv(bias=spec.qkv_bias),
        o=weights.output(bias=spec.o_bias),
        mlp_norm=weights.vector("post_attention_layernorm.weight", spec.hidden_size),
        gate_up=weights.gate_up(bias=spec.mlp_bias),
        down=weights.down(bias=spec.mlp_bias),
    )

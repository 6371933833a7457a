"""Llama family: Llama 2 and 3, SmolLM2, TinyLlama, Mistral."""

from __future__ import annotations

from octavo.models.decoder import DecoderLayer
from octavo.models.layer_weights import LayerWeights
from octavo.models.spec import ModelSpec


def load_layer(spec: ModelSpec, weights: LayerWeights) -> DecoderLayer:
    """One layer from its tensors. Biases as the settings say (attention_bias, mlp_bias); most models have none."""
    return DecoderLayer(
        attention_norm=weights.vector("input_layernorm.weight"),
        qkv=weights.qkv(bias=spec.qkv_bias),
        o=weights.linear("self_attn.o_proj", bias=spec.o_bias),
        mlp_norm=weights.vector("post_attention_layernorm.weight"),
        gate_up=weights.gate_up(bias=spec.mlp_bias),
        down=weights.linear("mlp.down_proj", bias=spec.mlp_bias),
    )

"""Qwen3: each head of q and k is normalised before the rotation; the head size stands apart from the hidden size."""

from __future__ import annotations

from octavo.models.decoder import DecoderLayer
from octavo.models.layer_weights import Weights


def load_layer(weights: Weights) -> DecoderLayer:
    """One layer from its tensors. attention_bias gives biases to q, k, v and o; published models have none."""
    spec = weights.spec
    return DecoderLayer(
        attention_norm=weights.vector("input_layernorm.weight", spec.hidden_size),
        qkv=weights.qkv(bias=spec.qkv_bias),
        o=weights.output(bias=spec.o_bias),
        mlp_norm=weights.vector("post_attention_layernorm.weight", spec.hidden_size),
        gate_up=weights.gate_up(bias=False),
        down=weights.down(bias=False),
        q_norm=weights.vector("self_attn.q_norm.weight", spec.head_dim),
        k_norm=weights.vector("self_attn.k_norm.weight", spec.head_dim),
    )

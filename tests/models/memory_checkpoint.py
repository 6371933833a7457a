"""Random checkpoints in memory, to test families and loader without files."""

from __future__ import annotations

import numpy as np

from octavo.models.spec import ModelSpec, RopeSpec
from octavo.ops.base import WeightTensor
from octavo.ops.formats import from_float32, quantize


def make_spec(family: str, **changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "family": family,
        "architecture": family,
        "num_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "vocab_size": 80,
        "rms_eps": 1e-5,
        "max_position": 256,
        "rope": RopeSpec(theta=10000.0, rotary_dim=16, interleaved=False),
        "qkv_bias": family == "qwen2",
        "qk_norm": family == "qwen3",
    }
    return ModelSpec(**(values | changes))  # type: ignore[arg-type]


class MemoryCheckpoint:
    """Every tensor of `spec`, random, matrices in `format`."""

    def __init__(self, spec: ModelSpec, format: str = "F32", seed: int = 0) -> None:
        self.spec = spec
        rng = np.random.default_rng(seed)
        self.tensors: dict[str, WeightTensor] = {}
        for name, shape in _shapes(spec).items():
            scale = 0.3 if len(shape) == 1 else shape[1] ** -0.5
            values = rng.standard_normal(shape).astype(np.float32) * np.float32(scale)
            if "norm" in name:
                values += 1
            weight = from_float32(name, values)
            self.tensors[name] = weight if len(shape) == 1 else quantize(weight, format)

    def tensor(self, name: str) -> WeightTensor:
        return self.tensors[name]

    def has(self, name: str) -> bool:
        return name in self.tensors


def _shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    hidden, ffn = spec.hidden_size, spec.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (spec.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not spec.tied_embeddings:
        shapes["lm_head.weight"] = (spec.vocab_size, hidden)
    maps = {
        "self_attn.q_proj": (spec.q_size, hidden, spec.qkv_bias),
        "self_attn.k_proj": (spec.kv_size, hidden, spec.qkv_bias),
        "self_attn.v_proj": (spec.kv_size, hidden, spec.qkv_bias),
        "self_attn.o_proj": (hidden, spec.q_size, spec.o_bias),
        "mlp.gate_proj": (ffn, hidden, spec.mlp_bias),
        "mlp.up_proj": (ffn, hidden, spec.mlp_bias),
        "mlp.down_proj": (hidden, ffn, spec.mlp_bias),
    }
    for i in range(spec.num_layers):
        prefix = f"model.layers.{i}."
        for name, (n, k, bias) in maps.items():
            shapes[f"{prefix}{name}.weight"] = (n, k)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (n,)
        shapes[f"{prefix}input_layernorm.weight"] = (hidden,)
        shapes[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
        if spec.qk_norm:
            shapes[f"{prefix}self_attn.q_norm.weight"] = (spec.head_dim,)
            shapes[f"{prefix}self_attn.k_norm.weight"] = (spec.head_dim,)
    return shapes

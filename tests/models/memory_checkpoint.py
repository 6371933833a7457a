"""Random checkpoints in memory, to test families and loader without files."""

from __future__ import annotations

import numpy as np

from octavo.models.names import EMBEDDING, HEAD, weight_shapes
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
        for name, shape in weight_shapes(spec).items():
            scale = 0.3 if len(shape) == 1 else shape[1] ** -0.5
            values = rng.standard_normal(shape).astype(np.float32) * np.float32(scale)
            if "norm" in name:
                values += 1
            weight = from_float32(name, values)
            self.tensors[name] = weight if len(shape) == 1 else quantize(weight, format)

    def peek(self, name: str) -> WeightTensor:
        return self.tensor(name)

    def tensor(self, name: str) -> WeightTensor:
        return self.tensors[EMBEDDING if name == HEAD and self.spec.tied_embeddings else name]

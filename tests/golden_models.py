"""Which models and rope settings the goldens cover: shared by make_goldens.py and the parity tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_models import LLAMA3 as TINY_LLAMA3
from tiny_models import VARIANTS, YARN, Sizes, make_gguf, make_variant

GGUF_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gguf-llama-q4_1": ("llama", "Q4_1", {}),
    "gguf-llama-f16": ("llama", "F16", {"tied": True}),
    "gguf-llama3-q4_k": ("llama", "Q4_K", {"rope": TINY_LLAMA3, "theta": 500000.0}),
    "gguf-mistral-q4_0": ("mistral", "Q4_0", {"head_dim": 32}),
    "gguf-mistral-window": ("mistral", "Q8_0", {"sliding_window": 40}),
    "gguf-yarn-q8_0": ("llama", "Q8_0", {"rope": YARN, "max_position": 256}),
    "gguf-qwen2-q5_0": ("qwen2", "Q5_0", {"rope": {"rope_type": "linear", "factor": 2.0}}),
    "gguf-qwen2-q5_k": ("qwen2", "Q5_K", {"tied": True}),
    "gguf-qwen3-q5_1": ("qwen3", "Q5_1", {"head_dim": 32}),
    "gguf-qwen3-q6_k": ("qwen3", "Q6_K", {}),
}
"""Name -> family, tensor type, sizes."""

PROMPT_LENGTHS = {"": (3, 20, 100), "llama-dynamic": (100,)}
"""Lengths of the prompts. Dynamic NTK depends on the longest length served, so there is one, beyond the original 64."""


def golden_sizes(name: str) -> Sizes:
    """Sizes of a model of VARIANTS or GGUF_MODELS."""
    if name in VARIANTS:
        family, settings = VARIANTS[name]
        settings = {k: v for k, v in settings.items() if k not in ("dtype", "shards", "old_rope")}
    else:
        family, format, settings = GGUF_MODELS[name]
        if format.endswith("_K"):
            settings = {"hidden": 256, "ffn": 256, **settings}
    return Sizes(family=family, **settings)


def make_golden_model(folder: Path, name: str) -> Path:
    """Write the model under `folder`: a directory, or a .gguf file for GGUF_MODELS; returns its path."""
    if name in VARIANTS:
        return make_variant(folder / name, name)
    family, format, settings = GGUF_MODELS[name]
    return make_gguf(folder / f"{name}.gguf", family, format, **settings)


def _rope(theta: float, head_dim: int, max_position: int, **rope: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": head_dim * 4,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": head_dim,
        "vocab_size": 32,
        "max_position_embeddings": max_position,
        "rope_parameters": {"rope_theta": theta, **rope},
    }


_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}

ROPE_CASES: dict[str, tuple[dict[str, Any], int]] = {
    "default": (_rope(1e4, 128, 4096, rope_type="default"), 4096),
    "linear": (_rope(1e4, 64, 4096, rope_type="linear", factor=2.5), 4096),
    "dynamic-within": (_rope(1e4, 128, 4096, **_DYNAMIC), 4000),
    "dynamic-at": (_rope(1e4, 128, 4096, **_DYNAMIC), 4096),
    "dynamic-beyond": (_rope(1e4, 128, 4096, **_DYNAMIC), 7000),
    "yarn": (_rope(1e4, 128, 16384, **_YARN), 16384),
    "yarn-betas": (_rope(1e6, 96, 16384, **_YARN, beta_fast=16.0, beta_slow=2.0), 16384),
    "yarn-exact": (_rope(1e6, 128, 16384, **_YARN, truncate=False), 16384),
    "yarn-factor": (_rope(1e4, 64, 16384, **_YARN, attention_factor=0.9), 16384),
    "yarn-mscale": (_rope(1e4, 64, 16384, **_YARN, mscale=0.7, mscale_all_dim=1.0), 16384),
    "llama3": (_rope(5e5, 128, 131072, **_LLAMA3), 131072),
    "llama3-1b": (_rope(5e5, 64, 131072, **{**_LLAMA3, "factor": 32.0}), 131072),
}
"""Name -> config.json of a model with that rope, and the longest length served."""

BEAM_WIDTHS = (2, 3, 4, 5, 6)
BEAM_RULES: tuple[tuple[float, bool | str], ...] = (
    (0.0, False),
    (1.0, False),
    (2.0, "never"),
    (1.0, True),
)
"""Length penalty and early stopping."""

BEAM_PROMPTS = (
    (1, 5),
    (2, 5),
    (7, 5),
    (15, 5),
    (16, 5),
    (17, 5),
    (24, 5),
    (31, 5),
    (33, 5),
    (40, 5),
)
"""Length of prompts, and how many have it."""

BEAM_TOKENS = 16
BEAM_ENDS = tuple(range(2, 482, 12))
"""Tokens that end a beam: so many that a random model meets them now and then."""

"""Tiny random models of every supported family, as Hugging Face directories and as GGUF files.

    python tests/tiny_models.py DIR [VARIANT ...]      writes DIR/VARIANT for each (default: all of VARIANTS)
    python tests/tiny_models.py DIR llama --sizes vocab_size=262144 hidden=640      of other sizes than a tiny one's

The same family, seed and sizes give the same weights in both layouts and on every machine. Weights are scaled
so that activations keep their size and the outputs depend on the whole context.
"""

from __future__ import annotations

import argparse
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tiny_gguf import write_gguf
from tiny_tokenizer import EOS_ID, write_tokenizer

F32 = npt.NDArray[np.float32]

FAMILIES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tied": True, "heads": 6, "kv_heads": 3, "hidden": 96}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-sharded": ("llama", {"shards": 3, "dtype": "bfloat16", "layers": 3}),
    "llama-linear": ("llama", {"rope": {"rope_type": "linear", "factor": 2.0}}),
    "llama-dynamic": (
        "llama",
        {"rope": {"rope_type": "dynamic", "factor": 2.0}, "max_position": 64},
    ),
    "llama-yarn": ("llama", {"rope": YARN, "max_position": 256}),
    "llama-llama3": ("llama", {"rope": LLAMA3, "max_position": 512, "theta": 500000.0}),
    "mistral": ("mistral", {"dtype": "float16", "head_dim": 32}),
    "mistral-window": ("mistral", {"sliding_window": 24, "layers": 3}),
    "qwen2": ("qwen2", {"tied": True, "dtype": "bfloat16"}),
    "qwen2-window": ("qwen2", {"sliding_window": 33, "full_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 32, "theta": 1000000.0}),
}
"""Name -> family and what differs from the defaults of `make_hf`."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Everything that shapes a tiny model; the keyword arguments of `make_hf` and `make_gguf`."""

    family: str
    seed: int = 0
    vocab_size: int = 512
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 128
    head_dim: int | None = None
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    max_position: int = 512
    theta: float = 10000.0
    eps: float = 1e-5
    rope: dict[str, Any] | None = None
    sliding_window: int | None = None
    full_layers: int = 0
    """The first so many layers have no window; only the families qwen2 and qwen3."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"expected a family of {', '.join(FAMILIES)}, got {self.family!r}")

    @property
    def dim(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def qkv_bias(self) -> bool:
        return self.attention_bias or self.family == "qwen2"


def random_weights(sizes: Sizes) -> dict[str, F32]:
    """Tensors by Hugging Face names. Each is drawn from its own generator, seeded by its name."""
    s, weights = sizes, {}

    def draw(name: str, *shape: int, std: float, mean: float = 0.0) -> None:
        generator = np.random.default_rng([s.seed, zlib.crc32(name.encode())])
        weights[name] = generator.standard_normal(shape, np.float32) * np.float32(std) + np.float32(
            mean
        )

    def linear(name: str, rows: int, columns: int, bias: bool, gain: float) -> None:
        draw(f"{name}.weight", rows, columns, std=gain / columns**0.5)
        if bias:
            draw(f"{name}.bias", rows, std=0.3)

    draw("model.embed_tokens.weight", s.vocab_size, s.hidden, std=0.3)
    q, kv = s.heads * s.dim, s.kv_heads * s.dim
    for i in range(s.layers):
        layer = f"model.layers.{i}"
        draw(f"{layer}.input_layernorm.weight", s.hidden, std=0.1, mean=1.0)
        linear(f"{layer}.self_attn.q_proj", q, s.hidden, s.qkv_bias, 1.5)
        linear(f"{layer}.self_attn.k_proj", kv, s.hidden, s.qkv_bias, 1.5)
        linear(f"{layer}.self_attn.v_proj", kv, s.hidden, s.qkv_bias, 1.0)
        linear(f"{layer}.self_attn.o_proj", s.hidden, q, s.attention_bias, 1.5)
        if s.family == "qwen3":
            draw(f"{layer}.self_attn.q_norm.weight", s.dim, std=0.2, mean=1.3)
            draw(f"{layer}.self_attn.k_norm.weight", s.dim, std=0.2, mean=1.3)
        draw(f"{layer}.post_attention_layernorm.weight", s.hidden, std=0.1, mean=1.0)
        linear(f"{layer}.mlp.gate_proj", s.ffn, s.hidden, s.mlp_bias, 1.0)
        linear(f"{layer}.mlp.up_proj", s.ffn, s.hidden, s.mlp_bias, 1.0)
        linear(f"{layer}.mlp.down_proj", s.hidden, s.ffn, s.mlp_bias, 2.0)
    draw("model.norm.weight", s.hidden, std=0.1, mean=1.0)
    if not s.tied:
        draw("lm_head.weight", s.vocab_size, s.hidden, std=0.3)
    return weights


def hf_config(sizes: Sizes, dtype: str = "float32", old_rope: bool = False) -> dict[str, Any]:
    """config.json. `old_rope`: rope_theta and rope_scaling, as before transformers 5."""
    s = sizes
    config: dict[str, Any] = {
        "architectures": [FAMILIES[s.family]],
        "model_type": s.family,
        "torch_dtype": dtype,
        "vocab_size": s.vocab_size,
        "hidden_size": s.hidden,
        "intermediate_size": s.ffn,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.dim,
        "hidden_act": "silu",
        "max_position_embeddings": s.max_position,
        "rms_norm_eps": s.eps,
        "tie_word_embeddings": s.tied,
        "bos_token_id": 0,
        "eos_token_id": EOS_ID,
        "sliding_window": s.sliding_window,
    }
    if s.family in ("llama", "qwen3"):
        config["attention_bias"] = s.attention_bias
    if s.family == "llama":
        config["mlp_bias"] = s.mlp_bias
    if s.family in ("qwen2", "qwen3"):
        config["use_sliding_window"] = s.sliding_window is not None
        config["max_window_layers"] = s.full_layers
    rope = dict(s.rope or {"rope_type": "default"})
    if old_rope:
        config["rope_theta"] = s.theta
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    else:
        config["rope_parameters"] = {"rope_theta": s.theta, **rope}
    return config


def write_safetensors(path: Path, tensors: dict[str, F32], dtype: str) -> None:
    """The format by hand: the library's NumPy writer has no bfloat16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name, values in tensors.items():
        if dtype == "bfloat16":
            kind = gguf.GGMLQuantizationType.BF16
            data = gguf.quants.quantize(np.atleast_2d(values), kind).tobytes()
        else:
            data = values.astype(dtype).tobytes()
        span = [end, end + len(data)]
        header[name] = {"dtype": DTYPES[dtype], "shape": list(values.shape), "data_offsets": span}
        parts.append(data)
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def make_hf(
    directory: Path,
    family: str,
    *,
    dtype: str = "float32",
    shards: int = 1,
    old_rope: bool = False,
    **sizes: Any,
) -> Path:
    """Write a model directory and return it. dtype: float32, float16 or bfloat16; `sizes`: see Sizes."""
    s = Sizes(family=family, **sizes)
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory, s.vocab_size)
    config = json.dumps(hf_config(s, dtype, old_rope), indent=1)
    (directory / "config.json").write_text(config)
    (directory / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 0, "eos_token_id": EOS_ID, "pad_token_id": 0})
    )
    weights = random_weights(s)
    names = sorted(weights)
    files = {}
    for i in range(shards):
        part = f"-{i + 1:05}-of-{shards:05}" if shards > 1 else ""
        file_name = f"model{part}.safetensors"
        mine = {name: weights[name] for name in names[i::shards]}
        write_safetensors(directory / file_name, mine, dtype)
        files.update(dict.fromkeys(mine, file_name))
    if shards > 1:
        index = {"metadata": {}, "weight_map": files}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return directory


def make_gguf(path: Path, family: str, qtype: str = "Q4_1", **sizes: Any) -> Path:
    """Write a GGUF file and return its path.

    Matrices get `qtype`, the embedding and output matrix Q8_0 if that is a quantised type, norms and biases F32. K types
    (Q4_K Q5_K Q6_K) need rows of a multiple of 256: hidden and ffn default to 256 then, and their blocks are random
    rather than quantised from `random_weights`.
    """
    if qtype.endswith("_K"):
        sizes = {"hidden": 256, "ffn": 256, **sizes}
    s = Sizes(family=family, **sizes)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(path, s, random_weights(s), qtype)
    return path


def make_variant(directory: Path, name: str, **changes: Any) -> Path:
    """`make_hf` with the settings of VARIANTS[name], changed by `changes`."""
    family, settings = VARIANTS[name]
    return make_hf(directory, family, **{**settings, **changes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS))
    parser.add_argument(
        "--sizes", nargs="*", default=[], metavar="NAME=VALUE", help="fields of Sizes"
    )
    arguments = parser.parse_args()
    sizes = {name: json.loads(value) for name, value in (s.split("=", 1) for s in arguments.sizes)}
    for name in arguments.variants:
        print(make_variant(arguments.directory / name, name, **sizes))


if __name__ == "__main__":
    main()

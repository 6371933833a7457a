"""config.json of a Hugging Face model directory -> ModelSpec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.models.fields import Fields
from octavo.models.spec import HF_ARCHITECTURES, ROPE_KINDS, ModelSpec, RopeSpec

MAX_TOKENS = 2**27


def spec_from_hf(config: Mapping[str, Any], source: str) -> ModelSpec:
    """Parse a config.json; `source` is its path, for messages.

    Raises UnsupportedModelError (architecture, activation, rope type, foreign quantisation) and
    MalformedModelError (a value that is missing or cannot be).
    """
    fields = Fields(config, source)
    architecture = _architecture(fields)
    family = HF_ARCHITECTURES[architecture]
    _refuse_variants(fields)
    hidden = fields.integer("hidden_size", high=2**17)
    num_layers = fields.integer("num_hidden_layers", high=1024)
    num_heads = fields.integer("num_attention_heads", high=1024)
    mistral = architecture == "MistralForCausalLM"
    default_kv_heads = 8 if mistral and "num_key_value_heads" not in config else num_heads
    head_dim = _head_dim(fields, family, hidden, num_heads)
    max_position = fields.integer("max_position_embeddings", high=MAX_TOKENS)
    rope, max_position = _rope(fields, head_dim, max_position)
    attention_bias = family != "qwen2" and fields.flag("attention_bias", False)
    window, full_layers = _windows(fields, architecture, num_layers, max_position)
    return ModelSpec(
        family=family,
        architecture=architecture,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", high=2**20),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", default_kv_heads, high=1024),
        head_dim=head_dim,
        vocab_size=fields.integer("vocab_size", high=2**24),
        rms_eps=fields.number("rms_norm_eps", 1e-6, high=1.0),
        max_position=max_position,
        rope=rope,
        qkv_bias=family == "qwen2" or attention_bias,
        o_bias=attention_bias,
        mlp_bias=architecture == "LlamaForCausalLM" and fields.flag("mlp_bias", False),
        qk_norm=family == "qwen3",
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        sliding_window=window,
        full_attention_layers=full_layers,
        source=source,
    )


def _architecture(fields: Fields) -> str:
    supported = ", ".join(HF_ARCHITECTURES)
    found = fields.values.get("architectures")
    if not isinstance(found, list) or not found or not all(isinstance(a, str) for a in found):
        raise fields.fail("architectures", f"a list with one of {supported}", found)
    for name in found:
        if name in HF_ARCHITECTURES:
            return str(name)
    raise UnsupportedModelError(
        f"{fields.source}: architecture {', '.join(found)} is not supported; supported: {supported}"
    )


def _refuse_variants(fields: Fields) -> None:
    activation = fields.text("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModelError(
            f"{fields.source}: hidden_act {activation!r} is not supported; supported: silu"
        )
    if (quantization := fields.table("quantization_config")) is not None:
        method = quantization.text("quant_method", "unknown")
        raise UnsupportedModelError(
            f"{fields.source}: weights quantised by {method!r} are not supported; supported: a GGUF file, "
            "or safetensors in F32, F16 or BF16 (with --quantization q8 or q4 if wanted)"
        )


def _head_dim(fields: Fields, family: str, hidden: int, num_heads: int) -> int:
    if fields.has("head_dim"):
        return fields.integer("head_dim", high=1024)
    if family == "qwen3":
        return 128
    if hidden % num_heads:
        raise MalformedModelError(
            f"{fields.source}: expected hidden_size to be a multiple of num_attention_heads, "
            f"got {hidden} and {num_heads}"
        )
    return hidden // num_heads


def _rope(fields: Fields, head_dim: int, max_position: int) -> tuple[RopeSpec, int]:
    """The rotary embedding and the context length that it allows.

    `rope_parameters` (transformers 5) holds theta beside the scaling; before that theta stood alone and the
    scaling was `rope_scaling`. A stretched context counts `factor` times the original one, as in vLLM.
    """
    table = (
        fields.table("rope_parameters") or fields.table("rope_scaling") or Fields({}, fields.source)
    )
    kind = table.text("rope_type", table.text("type", "default"))
    kind = "none" if kind == "default" else kind
    if kind not in ROPE_KINDS:
        supported = ", ".join(("default", *ROPE_KINDS[1:]))
        raise UnsupportedModelError(
            f"{table.source}: rope type {kind!r} is not supported; supported: {supported}"
        )
    theta = table.number("rope_theta", fields.number("rope_theta", 10000.0, low=1.0), low=1.0)
    partial = table.number(
        "partial_rotary_factor", fields.number("partial_rotary_factor", 1.0, high=1.0), high=1.0
    )
    base: dict[str, Any] = {
        "theta": theta,
        "rotary_dim": int(head_dim * partial),
        "interleaved": False,
    }
    if kind == "none":
        return RopeSpec(**base), max_position
    original = max_position
    if kind in ("yarn", "llama3"):
        original = table.integer("original_max_position_embeddings", max_position, high=MAX_TOKENS)
        original = fields.integer("original_max_position_embeddings", original, high=MAX_TOKENS)
    implied = max_position / original if kind == "yarn" and max_position > original else None
    factor = table.number("factor", implied, high=1e6)
    rope = RopeSpec(
        **base,
        kind=kind,
        factor=factor,
        original_max_position=original,
        attention_factor=_attention_factor(table, factor) if kind == "yarn" else 1.0,
        beta_fast=table.number("beta_fast", 32.0),
        beta_slow=table.number("beta_slow", 1.0),
        truncate=table.flag("truncate", True),
        **(_llama3_factors(table) if kind == "llama3" else {}),
    )
    if kind != "llama3":
        max_position = min(MAX_TOKENS, max(max_position, int(original * factor)))
    return rope, max_position


def _llama3_factors(table: Fields) -> dict[str, Any]:
    return {key: table.number(key) for key in ("low_freq_factor", "high_freq_factor")}


def _attention_factor(table: Fields, factor: float) -> float:
    """YaRN's temperature (Peng et al. 2023, §3.4) as a multiplier of cos and sin."""
    if table.has("attention_factor"):
        return table.number("attention_factor")

    def mscale(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    if table.values.get("mscale") and table.values.get("mscale_all_dim"):
        return mscale(table.number("mscale")) / mscale(table.number("mscale_all_dim"))
    return mscale(1.0)


def _windows(
    fields: Fields, architecture: str, num_layers: int, max_position: int
) -> tuple[int | None, frozenset[int]]:
    """The window in tokens, if any layer uses one that is shorter than the context, and the layers that use none."""
    everywhere: frozenset[int] = frozenset()
    absent = architecture == "MistralForCausalLM" and "sliding_window" not in fields.values
    if architecture == "LlamaForCausalLM" or not (absent or fields.has("sliding_window")):
        return None, everywhere
    window = fields.integer("sliding_window", 4096, high=MAX_TOKENS)
    full = everywhere
    if architecture.startswith("Qwen"):
        if not fields.flag("use_sliding_window", False):
            return None, everywhere
        full = _full_attention_layers(fields, num_layers)
    if window >= max_position or len(full) == num_layers:
        return None, everywhere
    return window, full


def _full_attention_layers(fields: Fields, num_layers: int) -> frozenset[int]:
    """Of a Qwen model that uses its window: by name, or the first max_window_layers."""
    types = fields.values.get("layer_types")
    if types is None:
        first = fields.integer("max_window_layers", 28, low=0)
        return frozenset(range(min(first, num_layers)))
    known = ("full_attention", "sliding_attention")
    if (
        not isinstance(types, list)
        or len(types) != num_layers
        or any(t not in known for t in types)
    ):
        raise fields.fail("layer_types", f"{num_layers} of {', '.join(known)}", types)
    return frozenset(i for i, kind in enumerate(types) if kind == "full_attention")

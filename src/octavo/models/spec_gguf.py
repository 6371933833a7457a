"""Metadata of a GGUF file -> ModelSpec."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from octavo.errors import UnsupportedModelError
from octavo.models.fields import Fields
from octavo.models.spec import GGUF_ARCHITECTURES, ModelSpec, RopeSpec
from octavo.models.spec_hf import MAX_TOKENS


def spec_from_gguf(
    metadata: Mapping[str, Any],
    source: str,
    tensor_names: Collection[str],
    vocab_size: int,
    freq_factors: tuple[float, ...] | None,
) -> ModelSpec:
    """Parse a GGUF header; `source` is its path, for messages.

    Which optional parts a model has is seen from `tensor_names` (GGUF names). `vocab_size`: rows of the
    embedding table. `freq_factors`: the tensor rope_freqs.weight, if there is one. Raises
    UnsupportedModelError and MalformedModelError.
    """
    general = Fields(metadata, source)
    architecture = general.text("general.architecture")
    if architecture not in GGUF_ARCHITECTURES:
        raise UnsupportedModelError(
            f"{source}: architecture {architecture!r} is not supported; "
            f"supported in GGUF files: {', '.join(GGUF_ARCHITECTURES)}"
        )
    family = GGUF_ARCHITECTURES[architecture]
    prefix = architecture + "."
    own = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    fields = Fields(own, f"{source}: {architecture}")
    _refuse_variants(fields)
    hidden = fields.integer("embedding_length", high=2**17)
    num_heads = fields.integer("attention.head_count", high=1024)
    head_dim = fields.integer("attention.key_length", max(1, hidden // num_heads), high=1024)
    if fields.integer("attention.value_length", head_dim, high=1024) != head_dim:
        raise fields.fail(
            "attention.value_length", f"the key length, {head_dim}", own["attention.value_length"]
        )
    max_position = fields.integer("context_length", high=MAX_TOKENS)
    window = fields.integer("attention.sliding_window", 0, low=0)
    return ModelSpec(
        family=family,
        architecture=architecture,
        num_layers=fields.integer("block_count", high=1024),
        hidden_size=hidden,
        intermediate_size=fields.integer("feed_forward_length", high=2**20),
        num_heads=num_heads,
        num_kv_heads=fields.integer("attention.head_count_kv", num_heads, high=1024),
        head_dim=head_dim,
        vocab_size=vocab_size,
        rms_eps=fields.number("attention.layer_norm_rms_epsilon", high=1.0),
        max_position=max_position,
        rope=_rope(fields, family, head_dim, max_position, freq_factors),
        qkv_bias="blk.0.attn_q.bias" in tensor_names,
        o_bias="blk.0.attn_output.bias" in tensor_names,
        mlp_bias="blk.0.ffn_gate.bias" in tensor_names,
        qk_norm="blk.0.attn_q_norm.weight" in tensor_names,
        tied_embeddings="output.weight" not in tensor_names,
        sliding_window=window if 0 < window < max_position else None,
        source=source,
    )


def _refuse_variants(fields: Fields) -> None:
    if fields.integer("expert_count", 0, low=0) > 0:
        raise UnsupportedModelError(
            f"{fields.source}: mixture-of-experts models are not supported; supported: dense ones"
        )
    if fields.has("attention.sliding_window_pattern"):
        raise UnsupportedModelError(
            f"{fields.source}: a sliding window in some layers only (attention.sliding_window_pattern) is not "
            "supported in GGUF files; supported: the same window in all layers, or none"
        )
    if not fields.flag("attention.causal", True):
        raise UnsupportedModelError(
            f"{fields.source}: attention that is not causal (an embedding model) is not supported"
        )


def _rope(
    fields: Fields,
    family: str,
    head_dim: int,
    max_position: int,
    freq_factors: tuple[float, ...] | None,
) -> RopeSpec:
    """GGUF files of the llama family hold q and k permuted for interleaved pairs; the others do not.

    `attn_factor` multiplies YaRN's own temperature; llama3 scaling comes as `freq_factors`.
    """
    kind = fields.text("rope.scaling.type", "linear" if fields.has("rope.scale_linear") else "none")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(
            f"{fields.source}: rope scaling {kind!r} is not supported; "
            "supported in GGUF files: none, linear, yarn"
        )
    factor = 1.0
    if kind != "none":
        old = fields.number("rope.scale_linear", 1.0, high=1e6)
        factor = fields.number("rope.scaling.factor", old, high=1e6)
    original = fields.integer(
        "rope.scaling.original_context_length", max_position, low=0, high=MAX_TOKENS
    )
    attention_factor = 1.0
    if kind == "yarn":
        attention_factor = fields.number("rope.scaling.attn_factor", 1.0)
        attention_factor *= fields.number("rope.scaling.yarn_attn_factor", 1.0)
        attention_factor *= 1.0 + 0.1 * math.log(max(factor, 1.0))
    return RopeSpec(
        theta=fields.number("rope.freq_base", 10000.0, low=1.0),
        rotary_dim=fields.integer("rope.dimension_count", head_dim, high=1024),
        interleaved=family == "llama",
        kind=kind,
        factor=factor,
        original_max_position=original or max_position,
        attention_factor=attention_factor,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        freq_factors=freq_factors,
    )

"""What a model's author says about generating with it: tokens that end a turn, sampling defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.models.fields import Fields

_LIMITS = {
    "temperature": (-1e-9, 100.0),
    "top_p": (0.0, 1.0),
    "top_k": (-2, 2**24),
    "min_p": (-1e-9, 1.0),
    "repetition_penalty": (0.0, 100.0),
}

_GGUF_DEFAULTS = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}

_GGUF_END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_END_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
)
_CONTROL = 3
"""Token type of control tokens in GGUF files."""


def eos_from_hf(
    config: Mapping[str, Any], settings: Mapping[str, Any], vocab_size: int, source: str
) -> tuple[int, ...]:
    """`eos_token_id` (one or a list) of generation_config.json and of config.json, without repeats."""
    ids: list[int] = []
    for file_name, values in (("generation_config.json", settings), ("config.json", config)):
        found = values.get("eos_token_id")
        for token_id in found if isinstance(found, list) else [found]:
            if token_id is None:
                continue
            if type(token_id) is not int or token_id < 0:
                where = Fields(values, f"{source}/{file_name}")
                raise where.fail("eos_token_id", "a token id or a list of them", found)
            ids.append(token_id)
    return _within(ids, vocab_size)


def eos_from_gguf(metadata: Mapping[str, Any], vocab_size: int, source: str) -> tuple[int, ...]:
    """End-of-sequence, -turn and -message ids of the metadata, then control tokens known to end a turn.

    Files made from chat models often name only one of the tokens that their model ends with.
    """
    fields = Fields(metadata, source)
    keys = [f"tokenizer.ggml.{key}" for key in _GGUF_END_IDS]
    ids = [fields.integer(key, low=0) for key in keys if fields.has(key)]
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(types, list) and len(types) == len(tokens):
        controls = {tokens[i]: i for i, kind in enumerate(types) if kind == _CONTROL}
        ids += [controls[text] for text in _END_TEXTS if text in controls]
    return _within(ids, vocab_size)


def defaults_from_hf(settings: Mapping[str, Any], source: str) -> dict[str, float]:
    """Sampling defaults of generation_config.json. With `do_sample` false (the default) there are none."""
    fields = Fields(settings, source)
    if not fields.flag("do_sample", False):
        return {}
    return _defaults(fields, {name: name for name in _LIMITS})


def defaults_from_gguf(metadata: Mapping[str, Any], source: str) -> dict[str, float]:
    """Sampling defaults of a GGUF file (general.sampling.*)."""
    return _defaults(Fields(metadata, source), _GGUF_DEFAULTS)


def _defaults(fields: Fields, keys: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, key in keys.items():
        if fields.has(key):
            low, high = _LIMITS[name]
            value = fields.number(key, low=low, high=high)
            found[name] = int(value) if name == "top_k" else value
    return found


def _within(ids: list[int], vocab_size: int) -> tuple[int, ...]:
    """Without repeats, and without ids that the model cannot produce."""
    return tuple(dict.fromkeys(i for i in ids if i < vocab_size))

"""The sampling flags of `generate` and `chat`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from octavo.request import SamplingParams


def _opt(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """Flags named as the fields of SamplingParams; None takes the model's own default."""

    max_tokens: int | None = _opt(None, "most new tokens (default: what the context holds)")
    min_tokens: int | None = _opt(None, "no end of text before so many new tokens")
    temperature: float | None = _opt(None, "0 takes the likeliest token each time")
    top_p: float | None = _opt(None, "draw from the likeliest tokens that hold this share together")
    top_k: int | None = _opt(None, "draw from so many of the likeliest tokens (0: all)")
    min_p: float | None = _opt(None, "leave out tokens below this share of the likeliest one")
    stop: tuple[str, ...] = _opt((), "end before this text; may be given more than once")
    ignore_eos: bool = _opt(False, "go on past the end of text")
    presence_penalty: float | None = _opt(None, "taken off tokens that occurred in the output")
    frequency_penalty: float | None = _opt(None, "taken off once for each occurrence")
    repetition_penalty: float | None = _opt(None, "divides logits of tokens seen before")


def sampling_params(settings: dict[str, Any], defaults: SamplingParams) -> SamplingParams:
    """`defaults` with the flags that were given, taken out of `settings`. Raises RequestError."""
    given = {f.name: settings.pop(f.name) for f in dataclasses.fields(SamplingOptions)}
    tokens = given.pop("max_tokens")
    # `is`, for 0 == False: a temperature of 0 is a wish, a flag left out is none.
    changes = {n: v for n, v in given.items() if not (v is None or v is False or v == ())}
    return dataclasses.replace(defaults, max_tokens=tokens, **changes)

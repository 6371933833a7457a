"""The sampling flags of `generate` and `chat`."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from octavo.config import opt
from octavo.errors import RequestError
from octavo.request import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """Flags named as the fields of SamplingParams; None takes the model's own default."""

    title: ClassVar[str] = "Sampling"

    max_tokens: int | None = opt(
        None, "most tokens to generate (default: up to the end of the context)"
    )
    min_tokens: int | None = opt(
        None, "tokens to generate before an end of text or a stop text may end it (default: 0)"
    )
    temperature: float | None = opt(
        None,
        "randomness: 0 always takes the most likely token (default: the model's own, else 1.0)",
    )
    top_p: float | None = opt(
        None,
        "sample only from the most likely tokens whose probabilities add up to this "
        "(default: the model's own, else 1.0)",
    )
    top_k: int | None = opt(
        None, "sample only from this many of the most likely tokens (default: the model's own, "
        "else 0: all)",
    )  # fmt: skip
    min_p: float | None = opt(
        None,
        "leave out tokens less likely than this share of the most likely one "
        "(default: the model's own, else 0.0)",
    )
    stop: tuple[str, ...] = opt((), "end before this text; may be given more than once")
    ignore_eos: bool = opt(False, "do not end where the model ends its text")
    presence_penalty: float | None = opt(
        None, "subtracted from the logit of each token that the output already contains, -2 to 2"
    )
    frequency_penalty: float | None = opt(
        None, "subtracted from a token's logit once for each time the output contains it, -2 to 2"
    )
    repetition_penalty: float | None = opt(
        None, "above 1: makes tokens that the prompt or the output contains less likely"
    )


def sampling_params(settings: dict[str, Any], defaults: SamplingParams) -> SamplingParams:
    """`defaults` with the flags that were given, taken out of `settings`. Raises RequestError."""
    given = {f.name: settings.pop(f.name) for f in dataclasses.fields(SamplingOptions)}
    tokens = given.pop("max_tokens")
    # `is`, for 0 == False: a temperature of 0 is a wish, a flag left out is none.
    changes = {n: v for n, v in given.items() if not (v is None or v is False or v == ())}
    try:
        return dataclasses.replace(defaults, max_tokens=tokens, **changes)
    except RequestError as error:
        raise RequestError(_with_flags(str(error), set(given) | {"max_tokens"})) from None


def _with_flags(message: str, names: set[str]) -> str:
    """A message of SamplingParams with the names of flags for those of fields."""
    return re.sub(
        r"\b[a-z_]+\b",
        lambda m: f"--{m[0].replace('_', '-')}" if m[0] in names else m[0],
        message,
    )

"""One request of a workload, and where its tokens come from."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from octavo.bench.options import DatasetOptions
from octavo.errors import ConfigError

Prompt = str | tuple[int, ...]

VOCAB_SIZE = 32000
"""Ids that about every open model has."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt (text or token ids) and the number of tokens to make of it.

    `arrival`: seconds after the start, or None: the request rate decides.
    """

    prompt: Prompt
    output_len: int
    arrival: float | None = None


class Tokenizer(Protocol):
    """What is needed of a tokenizer (octavo.text.tokenizer.Tokenizer)."""

    @property
    def vocab_size(self) -> int:
        """Every token id is below it."""
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        ...


class Draw:
    """Random lengths and token ids, the same for the same seed."""

    def __init__(self, options: DatasetOptions, seed: int, tokenizer: Tokenizer | None) -> None:
        self.random = random.Random(seed)
        self.low = options.min_token_id
        self.high = options.vocab_size or (tokenizer.vocab_size if tokenizer else VOCAB_SIZE)
        if self.high <= self.low + 1:
            raise ConfigError(
                f"--min-token-id: expected less than the vocabulary of {self.high} minus 1, "
                f"got {self.low}",
                "min_token_id",
            )

    def tokens(self, count: int, seed: int | None = None) -> tuple[int, ...]:
        """`count` token ids; with `seed`, a function of it alone."""
        source = self.random if seed is None else random.Random(seed)
        return tuple(source.choices(range(self.low, self.high), k=count))

    def about(self, mean: int, ratio: float) -> int:
        """A whole number from (1 - ratio) to (1 + ratio) times `mean`, at least 1."""
        low, high = round(mean * (1 - ratio)), round(mean * (1 + ratio))
        return max(1, self.random.randint(low, high)) if ratio else mean


def salted(samples: Sequence[Sample], salt: int, draw: Draw) -> list[Sample]:
    """The samples with another beginning for each `salt`: the first token id, or a word before the
    text."""
    if salt == 0:
        return list(samples)
    first = draw.low + salt % (draw.high - draw.low)
    changed = []
    for s in samples:
        prompt = f"{salt} {s.prompt}" if isinstance(s.prompt, str) else (first, *s.prompt[1:])
        changed.append(Sample(prompt, s.output_len, s.arrival))
    return changed

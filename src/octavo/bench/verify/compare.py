"""Tokens and log-probabilities, bit by bit."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A choice: its tokens, and for each the bytes of its log-probability and of the likeliest."""

    token_ids: tuple[int, ...]
    logprobs: tuple[bytes, ...]


def answer_of(choice: Any) -> Answer:
    """What is compared of a choice (octavo.llm.CompletionOutput)."""
    return Answer(tuple(choice.token_ids), tuple(map(raw, choice.logprobs)))


def raw(entry: Any) -> bytes:
    """The bytes of an entry of log-probabilities (octavo.request.TokenLogprob), as float64."""
    pairs = ((entry.token_id, entry.logprob), *entry.top)
    return b"".join(struct.pack("=qd", *pair) for pair in pairs)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where an answer differs."""

    request: int
    choice: int
    position: int
    what: str

    def __str__(self) -> str:
        return (
            f"request {self.request}, choice {self.choice}, token {self.position} of the output: "
            f"{self.what}"
        )


Answers = Sequence[Sequence[Answer]]
"""By request and choice."""


def differences(expected: Answers, got: Answers) -> list[Difference]:
    """One for each choice that is not what it should be."""
    found = []
    for i, (all_expected, all_got) in enumerate(zip(expected, got, strict=True)):
        for j, (one, other) in enumerate(zip(all_expected, all_got, strict=True)):
            what = _first(one, other)
            if what is not None:
                found.append(Difference(i, j, *what))
    return found


def _first(expected: Answer, got: Answer) -> tuple[int, str] | None:
    if len(expected.token_ids) != len(got.token_ids):
        expected_len, got_len = len(expected.token_ids), len(got.token_ids)
        return min(expected_len, got_len), f"expected {expected_len} tokens, got {got_len}"
    at = _position(expected.token_ids, got.token_ids)
    if at is not None:
        return at, f"expected token {expected.token_ids[at]}, got {got.token_ids[at]}"
    at = _position(expected.logprobs, got.logprobs)
    if at is not None:
        return at, "the token is right, its log-probabilities are not"
    return None


def _position(a: Iterable[object], b: Iterable[object]) -> int | None:
    pairs = enumerate(zip(a, b, strict=True))
    return next((i for i, (x, y) in pairs if x != y), None)

"""A tokenizer for tests: token i is one letter; a full stop marks the end of the alphabet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ."


class Letters:
    eos_token_ids = (70,)

    def encode(self, text: str) -> list[int]:
        return [ALPHABET.index(c) for c in text]

    def detokenizer(self, skip: bool = True, prompt_token_ids: Sequence[int] = ()) -> Letters:
        return Letters()

    def push(self, token_ids: Iterable[int]) -> str:
        return "".join(ALPHABET[i] for i in token_ids if i < len(ALPHABET))

    def flush(self) -> str:
        return ""

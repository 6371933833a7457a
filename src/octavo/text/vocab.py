"""What the tokens of a vocabulary stand for, in bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

SPACE_MARK = "\u2581"  # ▁, SentencePiece's visible space
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")

Style = Literal["byte_level", "sentencepiece"]


def byte_level_alphabet() -> dict[int, str]:
    """GPT-2's alphabet: byte -> the printable character that stands for it in a vocabulary.

    Printable Latin-1 characters stand for themselves; the other bytes take the characters from
    U+0100 on, in order of the byte.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


# str.translate table: character of the alphabet -> code point of its byte (Latin-1).
_TO_LATIN1 = {ord(char): byte for byte, char in byte_level_alphabet().items()}


class Vocab:
    """Token id -> bytes, exactly.

    `tokens[i]` is the text of id i as the model file writes it (None: an id without a token, which
    stands for no bytes). `literal` ids mean their text as it is written (added and special tokens);
    `special` ids are those that skip_special_tokens leaves out. `style` tells how the rest is
    written: GPT-2's byte alphabet, or SentencePiece's ▁ and <0xNN>. `strips_space`: the first space
    of a whole text was added by the tokenizer, so decoding takes it away again.
    """

    def __init__(
        self,
        tokens: Sequence[str | None],
        *,
        style: Style,
        literal: frozenset[int] = frozenset(),
        special: frozenset[int] = frozenset(),
        strips_space: bool = False,
    ) -> None:
        self.tokens = tokens
        self.style: Style = style
        self.literal = literal
        self.special = special
        self.strips_space = strips_space
        self._bytes: list[bytes | None] = [None] * len(tokens)
        self._texts: dict[int, str | None] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; b"" for an id that the vocabulary does not have."""
        if not 0 <= token_id < len(self._bytes):
            return b""
        known = self._bytes[token_id]
        if known is None:
            known = self._bytes[token_id] = self._to_bytes(token_id)
        return known

    def token_text(self, token_id: int) -> str | None:
        """The text of one token; None if its bytes are not whole characters."""
        if token_id not in self._texts:
            try:
                self._texts[token_id] = self.token_bytes(token_id).decode()
            except UnicodeDecodeError:
                self._texts[token_id] = None
        return self._texts[token_id]

    def _to_bytes(self, token_id: int) -> bytes:
        token = self.tokens[token_id]
        if token is None:
            return b""
        if token_id in self.special or (token_id in self.literal and self.style == "byte_level"):
            return token.encode("utf-8", "replace")
        if self.style == "byte_level":
            try:
                return token.translate(_TO_LATIN1).encode("latin-1")
            except UnicodeEncodeError:  # not written in the alphabet: means itself
                return token.encode("utf-8", "replace")
        if match := _BYTE_PIECE.match(token):
            return bytes([int(match[1], 16)])
        return token.replace(SPACE_MARK, " ").encode("utf-8", "replace")

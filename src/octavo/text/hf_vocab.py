"""What the tokens of a tokenizer.json stand for, read from its decoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from octavo.errors import UnsupportedModelError
from octavo.text.vocab import SPACE_MARK, Style, Vocab

if TYPE_CHECKING:
    import tokenizers

_SENTENCEPIECE = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


def read_vocab(backend: tokenizers.Tokenizer) -> Vocab:
    """The vocabulary of a loaded tokenizer.json.

    Knows the decoders of byte-level BPE (ByteLevel) and of SentencePiece (Metaspace; Replace of ▁,
    ByteFallback, Fuse, Strip). Raises UnsupportedModelError naming any other.
    """
    style, strips_space = _read_decoder(backend)
    ids = backend.get_vocab(with_added_tokens=True)
    tokens: list[str | None] = [None] * (max(ids.values(), default=-1) + 1)
    for text, token_id in ids.items():
        tokens[token_id] = text
    added = backend.get_added_tokens_decoder()
    return Vocab(
        tokens,
        style=style,
        literal=frozenset(added),
        special=frozenset(i for i, token in added.items() if token.special),
        strips_space=strips_space,
    )


def _read_decoder(backend: tokenizers.Tokenizer) -> tuple[Style, bool]:
    """(how tokens are written, whether decoding drops the first space)."""
    state = backend.decoder.__getstate__() if backend.decoder is not None else b"null"
    steps = _flatten(json.loads(state))
    kinds = {str(step["type"]) for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}:
        return "byte_level", False
    if kinds and kinds <= _SENTENCEPIECE and all(map(_is_usual, steps)):
        return "sentencepiece", any(map(_drops_first_space, steps))
    raise UnsupportedModelError(
        "tokenizer.json: expected the decoder of a byte-level BPE or SentencePiece tokenizer, got "
        f"{', '.join(sorted(kinds)) or 'none'}"
    )


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for part in decoder["decoders"] for step in _flatten(part)]
    return [decoder]


def _is_usual(step: dict[str, Any]) -> bool:
    match step["type"]:
        case "Replace":
            return (step["pattern"], step["content"]) == ({"String": SPACE_MARK}, " ")
        case "Strip":
            return (step["content"], step["stop"]) == (" ", 0) and step["start"] in (0, 1)
        case "Metaspace":
            return bool(step["replacement"] == SPACE_MARK)
    return True


def _drops_first_space(step: dict[str, Any]) -> bool:
    match step["type"]:
        case "Strip":
            return bool(step["start"] == 1)
        case "Metaspace":
            # Older files say add_prefix_space instead.
            default = "always" if step.get("add_prefix_space", True) else "never"
            return bool(step.get("prepend_scheme", default) != "never")
    return False

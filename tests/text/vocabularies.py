"""Small vocabularies for tests, as the metadata of GGUF files."""

from __future__ import annotations

from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Text that breaks careless detokenisers: joined emoji, flags, CJK, Persian with zero-width
# non-joiners, combining marks, characters of one to four bytes, control characters.
HARD_TEXTS = (
    "plain words, 12 numbers\nand lines",
    "  leading and trailing  ",
    "👨‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇮🇷🇯🇵",
    "汉字漢字 かなカナ 한국어 混合text",
    "می‌خواهم کتاب‌ها را ببینم؛ نمی‌دانم ۱۲۳",
    "é e\u0301 ﬁ ß ǅ क्षि",
    "𝒜𝓁𝑔 \U0010ffff \u0000\u0007\u200b\ufeff",
    "\ufffd is a character too",
    "▁ is SentencePiece's space",
    "",
)


def alphabet() -> dict[int, str]:
    """GPT-2's byte alphabet, worked out anew: byte -> character."""
    table, extra = {}, 256
    for byte in range(256):
        char = chr(byte)
        if char.isprintable() and not char.isspace() and byte != 0xAD:
            table[byte] = char
        else:
            table[byte], extra = chr(extra), extra + 1
    return table


def byte_level(**changes: Any) -> dict[str, object]:
    """256 bytes, a few merges, three control tokens, one user-defined token, one padding id."""
    chars = alphabet()
    space = chars[ord(" ")]
    merges = ["h e", "l l", "he ll", "hell o", f"{space} w", f"{space}w o", "1 2", "12 3"]
    merges += [f"{chars[0xE2]} {chars[0x80]}", f"{chars[0xF0]} {chars[0x9F]}"]
    tokens = [*chars.values(), *(m.replace(" ", "") for m in merges)]
    types = [NORMAL] * len(tokens)
    extra = [("<s>", CONTROL), ("</s>", CONTROL), ("<|im_end|>", CONTROL), ("=>é", USER_DEFINED)]
    extra.append(("[PAD]", UNUSED))
    tokens += [text for text, _ in extra]
    types += [kind for _, kind in extra]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
    }
    return metadata | _keys(changes)


def sentencepiece(**changes: Any) -> dict[str, object]:
    """<unk>, <s>, </s>, 256 byte pieces, some words with scores, two user-defined pieces."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    words = ["▁h", "el", "lo", "ello", "▁hello", "▁▁", "▁w", "or", "▁wor", "ld", "▁world", "می"]
    chars = sorted(set("▁helowrdabc.,123میخواهمé"))
    scores = [0.0] * len(tokens)
    scores += [-float(i + 1) for i in range(len(words) + len(chars))]
    tokens += [*words, *chars, "<tool>", "   "]
    types += [NORMAL] * (len(words) + len(chars)) + [USER_DEFINED] * 2
    scores += [0.0, 0.0]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return metadata | _keys(changes)


def _keys(changes: dict[str, Any]) -> dict[str, object]:
    return {f"tokenizer.ggml.{name}": value for name, value in changes.items()}

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text import Tokenizer, gguf_tokenizer
from tests.text.vocabularies import HARD_TEXTS, byte_level, sentencepiece

TOKENIZERS = {
    "byte_level": gguf_tokenizer(byte_level()),
    "sentencepiece": gguf_tokenizer(sentencepiece()),
}
each_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())
unicode = st.text(st.characters(codec="utf-8"), max_size=40)


def in_pieces(tokenizer: Tokenizer, ids: list[int], cuts: list[int], **options: bool) -> list[str]:
    """Push `ids` in chunks that end at `cuts` -> what each push and the flush returned."""
    detokenizer = tokenizer.detokenizer(**options)
    borders = [0, *sorted(c % (len(ids) + 1) for c in cuts), len(ids)]
    chunks = [ids[a:b] for a, b in pairwise(borders)]
    return [*map(detokenizer.push, chunks), detokenizer.flush()]


@each_tokenizer
@settings(deadline=None)
@given(text=unicode | st.sampled_from(HARD_TEXTS), cuts=st.lists(st.integers(0, 10**6)))
def test_text_survives_any_split(tokenizer: Tokenizer, text: str, cuts: list[int]) -> None:
    if tokenizer.vocab.style == "sentencepiece":
        text = text.replace("▁", " ")  # SentencePiece itself cannot tell the two apart
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = in_pieces(tokenizer, ids, cuts, skip_special_tokens=False)
    assert "".join(pieces) == text
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@each_tokenizer
@settings(deadline=None)
@given(data=st.data(), cuts=st.lists(st.integers(0, 10**6)), skip=st.booleans())
def test_any_tokens_decode_the_same_in_pieces_as_at_once(
    tokenizer: Tokenizer, data: st.DataObject, cuts: list[int], skip: bool
) -> None:
    # Mostly invalid UTF-8: bytes at random, special tokens, ids that do not exist.
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=30))
    visible = [i for i in ids if not (skip and tokenizer.is_special(i))]
    expected = b"".join(map(tokenizer.token_bytes, visible))
    if tokenizer.vocab.strips_space:
        expected = expected.removeprefix(b" ")
    pieces = in_pieces(tokenizer, ids, cuts, skip_special_tokens=skip)
    assert "".join(pieces) == expected.decode("utf-8", "replace")
    assert tokenizer.decode(ids, skip) == expected.decode("utf-8", "replace")


@each_tokenizer
@pytest.mark.parametrize("text", HARD_TEXTS)
def test_no_push_ever_shows_a_part_of_a_character(tokenizer: Tokenizer, text: str) -> None:
    text = text.replace("\ufffd", "?")
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = in_pieces(tokenizer, ids, list(range(len(ids))))
    assert all("\ufffd" not in piece for piece in pieces)
    assert pieces[-1] == ""


@pytest.mark.parametrize(
    ("data", "shown", "rest"),
    [
        (b"\xf0\x9f\x91", "", "\ufffd"),  # three quarters of an emoji: one mark
        (b"\xf0\x9fA", "\ufffdA", ""),
        (b"\xe2\x80\xe2\x80\x8c", "\ufffd\u200c", ""),
        (b"\xff\xfe", "\ufffd\ufffd", ""),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd", ""),  # a surrogate is not UTF-8
        (b"\xc3", "", "\ufffd"),
    ],
)
def test_invalid_bytes_become_replacement_characters(data: bytes, shown: str, rest: str) -> None:
    for tokenizer in TOKENIZERS.values():
        of_byte = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
        detokenizer = tokenizer.detokenizer()
        ids = [of_byte[bytes([b])] for b in data]
        assert "".join(detokenizer.push([i]) for i in ids) == shown
        assert detokenizer.flush() == rest


def test_the_first_space_counts_only_after_a_prompt() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    hello = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.token_bytes(hello[0]) == b" hello"
    bos = tokenizer.bos_token_id
    assert bos is not None
    assert tokenizer.detokenizer().push(hello) == "hello"
    assert tokenizer.detokenizer(prompt_token_ids=hello).push(hello) == " hello"
    # A BOS token alone shows nothing, so the text has not begun yet; shown, it has.
    assert tokenizer.detokenizer(prompt_token_ids=[bos]).push(hello) == "hello"
    shown = tokenizer.detokenizer(skip_special_tokens=False, prompt_token_ids=[bos])
    assert shown.push(hello) == " hello"
    assert tokenizer.decode(hello * 2) == "hello hello"


def test_only_one_space_is_taken_away() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    assert tokenizer.decode(tokenizer.encode("  hello")) == "  hello"


@each_tokenizer
@settings(deadline=None)
@given(text=st.sampled_from(HARD_TEXTS), cut=st.integers(0, 100))
def test_a_prompt_may_end_inside_a_character(tokenizer: Tokenizer, text: str, cut: int) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    prompt, output = ids[: cut % (len(ids) + 1)], ids[cut % (len(ids) + 1) :]
    shown = tokenizer.detokenizer()
    before = shown.push(prompt)
    after = tokenizer.detokenizer(prompt_token_ids=prompt)
    assert before + after.push(output) + after.flush() == tokenizer.decode(ids)


def test_special_tokens_are_skipped_or_shown() -> None:
    tokenizer = TOKENIZERS["byte_level"]
    ids = tokenizer.encode("<s>hello<|im_end|>=>é")
    assert tokenizer.decode(ids) == "hello=>é"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s>hello<|im_end|>=>é"

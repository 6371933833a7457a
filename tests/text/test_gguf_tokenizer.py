from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import MalformedModelError, RequestError, UnsupportedModelError
from octavo.text import gguf_tokenizer
from octavo.text.pretokenizers import SPECS, build, spec_for
from tests.text.vocabularies import NORMAL, UNKNOWN, byte_level, sentencepiece

NUM_PIECES = gguf_tokenizer(sentencepiece()).vocab_size


def texts(metadata: dict[str, object], text: str, **options: bool) -> list[str]:
    """The tokens of a text, as the file writes them."""
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    return [tokens[i] for i in gguf_tokenizer(metadata).encode(text, **options)]


def test_byte_level_merges_in_order() -> None:
    assert texts(byte_level(), "hello world 12345") == [
        "hello", "Ġwo", "r", "l", "d", "Ġ", "123", "4", "5",
    ]  # fmt: skip


def test_special_tokens_written_in_the_text_are_special_tokens() -> None:
    assert texts(byte_level(), "<s>h=>é<|im_end|>") == ["<s>", "h", "=>é", "<|im_end|>"]
    assert texts(sentencepiece(), "<s>hello<tool>", add_special_tokens=False) == [
        "<s>", "▁hello", "<tool>",
    ]  # fmt: skip


def test_padding_ids_and_ids_beyond_the_vocabulary_stand_for_nothing() -> None:
    tokenizer = gguf_tokenizer(byte_level())
    assert tokenizer.token_bytes(tokenizer.vocab_size - 1) == b""  # [PAD]
    assert tokenizer.token_bytes(tokenizer.vocab_size) == tokenizer.token_bytes(-1) == b""
    assert texts(byte_level(), "[PAD]") == ["[", "P", "A", "D", "]"]


def test_bytes_and_text_of_single_tokens() -> None:
    tokenizer = gguf_tokenizer(byte_level())
    ids = tokenizer.encode("hello 👍=>é<s>")
    assert [tokenizer.token_bytes(i) for i in ids] == [
        b"hello", b" ", b"\xf0\x9f", b"\x91", b"\x8d", "=>é".encode(), b"<s>",
    ]  # fmt: skip
    assert [tokenizer.token_text(i) for i in ids] == [
        "hello", " ", "\ufffd", "\ufffd", "\ufffd", "=>é", "<s>",
    ]  # fmt: skip
    assert [tokenizer.is_special(i) for i in ids] == [False] * 6 + [True]
    assert tokenizer.max_token_bytes == len("<|im_end|>")


@pytest.mark.parametrize(
    ("changes", "prefix", "suffix"),
    [
        ({}, [], []),
        ({"add_bos_token": True}, ["<s>"], []),
        ({"add_bos_token": True, "add_eos_token": True}, ["<s>"], ["</s>"]),
        ({"pre": "llama-bpe"}, ["<s>"], []),  # this pre-tokenizer's models start with BOS
        ({"pre": "llama-bpe", "add_bos_token": False}, [], []),
    ],
)
def test_what_is_added_around_a_text(
    changes: dict[str, Any], prefix: list[str], suffix: list[str]
) -> None:
    metadata = byte_level(**changes)
    assert texts(metadata, "h") == [*prefix, "h", *suffix]
    assert texts(metadata, "h", add_special_tokens=False) == ["h"]


def test_tokens_that_end_an_answer() -> None:
    metadata = byte_level()
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    end, im_end, eot = tokens.index("</s>"), tokens.index("<|im_end|>"), tokens.index("a")
    assert gguf_tokenizer(metadata).eos_token_ids == (end, im_end)
    with_eot = metadata | {"tokenizer.ggml.eot_token_id": eot}
    assert gguf_tokenizer(with_eot).eos_token_ids == (end, eot, im_end)
    # Some files mark it as an ordinary word.
    types[im_end] = NORMAL
    assert gguf_tokenizer(metadata).eos_token_ids == (end, im_end)
    assert gguf_tokenizer(metadata).is_special(im_end)


def test_sentencepiece_puts_a_space_in_front_and_falls_back_to_bytes() -> None:
    assert texts(sentencepiece(), "hello world") == ["<s>", "▁hello", "▁world"]
    assert texts(sentencepiece(), "hé👍") == [
        "<s>",
        "▁h",
        "é",
        *(f"<0x{b:02X}>" for b in "👍".encode()),
    ]
    no_space = sentencepiece(add_space_prefix=False, add_bos_token=False)
    assert texts(no_space, "hello") == ["h", "ello"]
    assert gguf_tokenizer(no_space).decode(gguf_tokenizer(no_space).encode(" hello")) == " hello"


def test_sentencepiece_unknown_is_special() -> None:
    tokenizer = gguf_tokenizer(sentencepiece())
    assert tokenizer.is_special(0)
    assert tokenizer.decode(tokenizer.encode("<unk>hello")) == "hello"


def merge_by_hand(text: str, scores: dict[str, float]) -> list[str]:
    """Join the neighbours whose whole scores highest, again and again; the leftmost of equals."""
    pieces = list(text)
    while True:
        joined = [a + b for a, b in pairwise(pieces)]
        known = [(-scores[whole], at) for at, whole in enumerate(joined) if whole in scores]
        if not known:
            return pieces
        at = min(known)[1]
        pieces[at : at + 2] = [joined[at]]


@settings(deadline=None)
@given(
    words=st.lists(st.text("abc", min_size=2, max_size=5), unique=True, max_size=20),
    text=st.text("abc", max_size=30),
    draw=st.randoms(use_true_random=False),
)
def test_sentencepiece_merges_the_best_scored_pair_first(
    words: list[str], text: str, draw: random.Random
) -> None:
    # Wholes that can be made in one way only: which of several ways is taken is not a matter of score.
    parts = {*"abc"}
    pieces = ["a", "b", "c"]
    for word in words:
        if sum(word[:k] in parts and word[k:] in parts for k in range(1, len(word))) <= 1:
            parts.add(word)
            pieces.append(word)
    ranks = draw.sample(range(len(pieces)), len(pieces))
    scores = {piece: -float(rank) for rank, piece in zip(ranks, pieces, strict=True)}
    ways = {w: sum(w[:k] in parts and w[k:] in parts for k in range(1, len(w))) for w in pieces}
    if max(ways.values()) > 1:
        return
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", *pieces],
        "tokenizer.ggml.token_type": [UNKNOWN, *[NORMAL] * len(pieces)],
        "tokenizer.ggml.scores": [0.0, *scores.values()],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": False,
    }
    assert texts(metadata, text) == merge_by_hand(text, scores)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "it's 1234  x\n\n", ["it", "'s", "Ġ1234", "Ġ", "Ġx", "ĊĊ"]),
        ("smollm", "a 1234", ["a", "Ġ", "1", "2", "3", "4"]),
        ("llama-bpe", "IT'S 12345!\n\n x", ["IT", "'S", "Ġ", "123", "45", "!ĊĊ", "Ġx"]),
        ("qwen2", "it's 123 (a)", ["it", "'s", "Ġ", "1", "2", "3", "Ġ(", "a", ")"]),
        ("tekken", "HelloWorld 12/\n", ["Hello", "World", "Ġ", "1", "2", "/Ċ"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", "Ġ", "123", "4"]),
        ("deepseek-v3", "x=1234汉字 ab", ["x", "=", "123", "4", "æ±īåŃĹ", "Ġab"]),
        ("falcon", "12345 a+b", ["123", "45", "Ġa", "+", "b"]),
        ("default", "1234 a+b", ["123", "4", "Ġa", "+", "b"]),
    ],
)
def test_pre_tokenizers_cut_words(name: str, text: str, words: list[str]) -> None:
    assert [word for word, _ in build(spec_for(name)).pre_tokenize_str(text)] == words


@pytest.mark.parametrize("name", sorted(SPECS))
@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
def test_pre_tokenizers_lose_nothing(name: str, text: str) -> None:
    spans = [span for _, span in build(SPECS[name]).pre_tokenize_str(text)]
    assert "".join(text[a:b] for a, b in spans) == text


def test_qwen2_composes_characters() -> None:
    assert texts(byte_level(pre="qwen2"), "e\u0301") == texts(byte_level(pre="qwen2"), "é")
    assert texts(byte_level(pre="gpt-2"), "e\u0301") != texts(byte_level(pre="gpt-2"), "é")


def test_merges_of_tokens_that_do_not_exist_are_left_out() -> None:
    metadata = byte_level()
    merges = metadata["tokenizer.ggml.merges"]
    assert isinstance(merges, list)
    metadata["tokenizer.ggml.merges"] = ["zz y", *merges]
    assert texts(metadata, "hello") == ["hello"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"model": "bert"},
            UnsupportedModelError,
            r"model: expected one of gpt2, llama, got 'bert'",
        ),
        ({"model": None}, UnsupportedModelError, "got None"),
        (
            {"pre": "nonesuch"},
            UnsupportedModelError,
            r"pre: unknown .*'nonesuch'; known are .*smollm",
        ),
        (
            {"tokens": None},
            MalformedModelError,
            "tokens: expected an array of strings, it is missing",
        ),
        ({"tokens": "abc"}, MalformedModelError, "tokens: expected an array of strings, got str"),
        ({"tokens": 5}, MalformedModelError, "tokens: expected an array of strings, got int"),
        ({"tokens": []}, MalformedModelError, "tokens: expected at least one"),
        ({"tokens": ["a", 7]}, MalformedModelError, r"tokens\[1\]: expected a string, got int"),
        ({"merges": None}, MalformedModelError, "merges: .* missing"),
        ({"merges": ["ab"]}, MalformedModelError, "merges: expected two parts .* got 'ab'"),
        (
            {"token_type": [1, 1]},
            MalformedModelError,
            r"token_type: expected \d+ entries, .* got 2",
        ),
        (
            {"token_type": "1"},
            MalformedModelError,
            "token_type: expected an array of numbers, got str",
        ),
        ({"bos_token_id": 10**6}, MalformedModelError, r"bos_token_id: expected an id below \d+"),
        ({"eos_token_id": "x"}, MalformedModelError, "eos_token_id: expected an integer, got 'x'"),
        ({"add_bos_token": "no"}, MalformedModelError, "add_bos_token: expected true or false"),
    ],
)
def test_malformed_byte_level_metadata(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gguf_tokenizer(byte_level(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "scores: expected an array of numbers, it is missing"),
        ({"scores": [1.0]}, r"scores: expected \d+ entries"),
        ({"scores": ["x"] * NUM_PIECES}, "scores: expected an array of numbers, got something"),
        ({"scores": [None] * NUM_PIECES}, "scores: expected an array of numbers, got something"),
    ],
)
def test_malformed_sentencepiece_metadata(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedModelError, match=message):
        gguf_tokenizer(sentencepiece(**changes))


def test_none_for_a_token_id_is_written_as_all_ones() -> None:
    tokenizer = gguf_tokenizer(byte_level(bos_token_id=2**32 - 1, add_bos_token=True))
    assert tokenizer.bos_token_id is None
    assert tokenizer.prefix_ids == ()


@pytest.mark.parametrize("text", ["a\ud83d", "\udc00"])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"lone surrogate U\+D83D at character 1|U\+DC00"):
        gguf_tokenizer(byte_level()).encode(text)

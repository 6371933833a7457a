from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import RequestError
from octavo.text import encode_prompt, gguf_tokenizer
from tests.text.vocabularies import byte_level

TOKENIZER = gguf_tokenizer(byte_level(add_bos_token=True))
SIZE = TOKENIZER.vocab_size


def test_text_is_encoded_and_ids_are_taken_as_they_are() -> None:
    assert encode_prompt(TOKENIZER, "hello") == TOKENIZER.encode("hello")
    assert (
        encode_prompt(TOKENIZER, "hello", add_special_tokens=False) == TOKENIZER.encode("hello")[1:]
    )
    assert encode_prompt(TOKENIZER, (5, 0, SIZE - 1)) == [5, 0, SIZE - 1]
    assert encode_prompt(TOKENIZER, [SIZE], num_ids=SIZE + 1) == [SIZE]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "at least one token, got none"),
        ([1, SIZE], rf"prompt\[1\]: expected a token id from 0 to {SIZE - 1}, got {SIZE}"),
        ([-1], "got -1"),
        ([1.0], r"prompt\[0\]: expected a token id, got float"),
        ([True], "got bool"),
        (["a"], "got str"),
        ("\ud800", "lone surrogate"),
    ],
)
def test_bad_prompts_are_refused(prompt: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        encode_prompt(TOKENIZER, prompt)


def test_an_empty_text_is_a_prompt_only_if_something_is_added() -> None:
    assert encode_prompt(TOKENIZER, "") == [TOKENIZER.bos_token_id]
    with pytest.raises(RequestError, match="at least one token"):
        encode_prompt(TOKENIZER, "", add_special_tokens=False)

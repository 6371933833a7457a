"""The default model's tokenizer against llama.cpp's (goldens.json, make_text_goldens.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.text import Tokenizer, gguf_tokenizer

GOLDENS = json.loads(Path(__file__).with_name("goldens.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer(default_model_path: Path) -> Tokenizer:
    from gguf import GGUFReader

    fields = GGUFReader(default_model_path).fields
    metadata = {k: f.contents() for k, f in fields.items() if k.startswith("tokenizer.")}
    return gguf_tokenizer(metadata)


def test_encodes_as_an_independent_implementation_does(tokenizer: Tokenizer) -> None:
    assert len(GOLDENS) > 60
    for text, ids in GOLDENS:
        assert tokenizer.encode(text) == ids, text


def test_decodes_to_the_same_text_whole_and_token_by_token(tokenizer: Tokenizer) -> None:
    for text, ids in GOLDENS:
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        detokenizer = tokenizer.detokenizer(skip_special_tokens=False)
        pieces = [detokenizer.push([i]) for i in ids]
        assert "".join(pieces) == text
        assert detokenizer.flush() == ""


def test_lines_of_wikitext_survive(tokenizer: Tokenizer, shared_dir: Path) -> None:
    text = (shared_dir / "text" / "wikitext2_test.txt").read_text(encoding="utf-8")
    for line in text.splitlines(keepends=True)[:2000]:
        assert tokenizer.decode(tokenizer.encode(line), skip_special_tokens=False) == line


def test_the_facts_about_it(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == (2, 0)  # <|im_end|>, <|endoftext|>
    assert tokenizer.encode("") == []
    assert [tokenizer.is_special(i) for i in (0, 1, 2, 16, 17)] == [True] * 4 + [False]
    assert tokenizer.max_token_bytes == 81


def test_its_chat_template(tokenizer: Tokenizer) -> None:
    assert tokenizer.chat_template is not None
    text = tokenizer.chat_template.render([{"role": "user", "content": "Hi"}])
    assert text == (
        "<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.encode(text)
    assert [i for i in ids if tokenizer.is_special(i)] == [1, 2, 1, 2, 1]

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from octavo.errors import MalformedModelError, ModelNotFoundError, UnsupportedModelError
from octavo.text import load_hf_tokenizer
from tests.text.vocabularies import HARD_TEXTS, alphabet

SPECIALS = ("<unk>", "<s>", "</s>", "<|eot_id|>")


def byte_level_backend() -> Tokenizer:
    vocab = {char: i for i, char in enumerate(alphabet().values())}
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w")]
    vocab |= {a + b: len(vocab) + k for k, (a, b) in enumerate(merges)}
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIALS])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


def sentencepiece_backend(metaspace: bool = False) -> Tokenizer:
    tokens = [
        *SPECIALS,
        *(f"<0x{b:02X}>" for b in range(256)),
        *"▁helo",
        "he",
        "ll",
        "hell",
        "hello",
    ]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>"))
    if metaspace:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first", split=False)]
        )
    else:
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        backend.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    backend.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIALS])
    return backend


def add_bos(backend: Tokenizer) -> Tokenizer:
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    return backend


def save(directory: Path, backend: Tokenizer, **files: Any) -> Path:
    """Write tokenizer.json and, by their names without .json, other files."""
    backend.save(str(directory / "tokenizer.json"))
    files = {"tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>"}} | files
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def test_byte_level(tmp_path: Path) -> None:
    backend = byte_level_backend()
    tokenizer = load_hf_tokenizer(save(tmp_path, backend))
    text = "hello world<|eot_id|> é👍<tool>"
    ids = tokenizer.encode(text)
    assert ids == backend.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == "hello world é👍<tool>"
    assert tokenizer.is_special(ids[-1]) is False
    assert tokenizer.vocab_size == 256 + 5 + 5
    assert tokenizer.bos_token_id == backend.token_to_id("<s>")
    assert tokenizer.eos_token_ids == (backend.token_to_id("</s>"),)
    assert tokenizer.chat_template is None


@pytest.mark.parametrize("metaspace", [False, True])
def test_sentencepiece_decodes_as_the_library_does(tmp_path: Path, metaspace: bool) -> None:
    backend = sentencepiece_backend(metaspace)
    tokenizer = load_hf_tokenizer(save(tmp_path, backend))
    for text in (*HARD_TEXTS, "hello hello", " hello", "  ", "hello<s>hello"):
        if "▁" in text:
            continue
        ids = tokenizer.encode(text)
        assert ids == backend.encode(text, add_special_tokens=False).ids
        if metaspace and text.startswith(" "):
            continue  # encoding adds no space to this one, and the library takes all of them away
        assert tokenizer.decode(ids) == backend.decode(ids)
        assert tokenizer.decode(ids, False).replace("<s> ", "<s>") == text
    hello = tokenizer.encode("hello")
    assert tokenizer.decode(hello) == "hello"
    assert tokenizer.token_bytes(hello[0]).startswith(b" ")


@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_byte_level_text_survives(byte_level: Any, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text), skip_special_tokens=False) == text


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_hf_tokenizer(save(tmp_path_factory.mktemp("byte_level"), byte_level_backend()))


@pytest.mark.parametrize(
    ("in_file", "declared", "expected"),
    [
        (True, None, True),
        (False, None, False),
        (True, False, False),
        (False, True, True),
    ],
)
def test_bos_as_declared_else_as_the_file_has_it(
    tmp_path: Path, in_file: bool, declared: bool | None, expected: bool
) -> None:
    backend = byte_level_backend()
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    if declared is not None:
        config["add_bos_token"] = declared  # type: ignore[assignment]
    save(tmp_path, add_bos(backend) if in_file else backend, tokenizer_config=config)
    tokenizer = load_hf_tokenizer(tmp_path)
    hello = tokenizer.encode("hello", add_special_tokens=False)
    bos = [backend.token_to_id("<s>")] if expected else []
    assert tokenizer.encode("hello") == [*bos, *hello]
    assert tokenizer.encode("") == bos


def test_an_eos_after_the_text_when_declared(tmp_path: Path) -> None:
    backend = byte_level_backend()
    config = {"eos_token": "</s>", "add_eos_token": True}
    tokenizer = load_hf_tokenizer(save(tmp_path, backend, tokenizer_config=config))
    assert tokenizer.encode("h")[-1] == backend.token_to_id("</s>")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"generation_config": {"eos_token_id": "EOT"}}, ["</s>", "<|eot_id|>"]),
        ({"generation_config": {"eos_token_id": ["EOT", "EOS"]}}, ["</s>", "<|eot_id|>"]),
        ({"config": {"eos_token_id": "EOT"}}, ["</s>"]),
        ({"tokenizer_config": {}, "config": {"eos_token_id": "EOT"}}, ["<|eot_id|>"]),
        ({"tokenizer_config": {}, "special_tokens_map": {"eos_token": "</s>"}}, ["</s>"]),
        ({"tokenizer_config": {"eos_token": "nonesuch"}}, []),
    ],
)
def test_eos_ids_from_all_files(tmp_path: Path, files: Any, expected: list[str]) -> None:
    backend = byte_level_backend()
    ids = {"EOT": backend.token_to_id("<|eot_id|>"), "EOS": backend.token_to_id("</s>")}
    text = json.dumps(files)
    for name, token_id in ids.items():
        text = text.replace(f'"{name}"', str(token_id))
    tokenizer = load_hf_tokenizer(save(tmp_path, backend, **json.loads(text)))
    assert [tokenizer.token_text(i) for i in tokenizer.eos_token_ids] == expected


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    tokenizer = load_hf_tokenizer(save(tmp_path, backend))
    assert len(tokenizer.encode("abcdefgh")) == 8


def test_tokens_declared_only_in_the_config(tmp_path: Path) -> None:
    backend = byte_level_backend()
    size = backend.get_vocab_size()
    declared = {
        str(size): {"content": "<think>", "special": True},
        str(size + 1): {"content": "<plain>", "special": False},
        str(size + 9): {"content": "<gap>", "special": True},
    }
    config = {"added_tokens_decoder": declared}
    tokenizer = load_hf_tokenizer(save(tmp_path, backend, tokenizer_config=config))
    assert tokenizer.encode("<think><plain>") == [size, size + 1]
    assert tokenizer.is_special(size)
    assert not tokenizer.is_special(size + 1)
    assert len(tokenizer.encode("<gap>")) == 5  # would not get the id it is declared with


def chat(tokenizer: Any, **options: Any) -> str:
    text: str = tokenizer.chat_template.render([{"role": "user", "content": "hi"}], **options)
    return text


def test_chat_template_in_the_config_with_special_tokens(tmp_path: Path) -> None:
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>"},
        "unk_token": "<unk>",
        "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}",
    }
    tokenizer = load_hf_tokenizer(save(tmp_path, byte_level_backend(), tokenizer_config=config))
    assert chat(tokenizer) == "<s>hi</s><unk>"


def test_named_chat_templates(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    config = {"chat_template": named}
    tokenizer = load_hf_tokenizer(save(tmp_path, byte_level_backend(), tokenizer_config=config))
    assert chat(tokenizer) == "d"
    assert chat(tokenizer, tools=[{"type": "function"}]) == "t"


def test_chat_template_files_beside_the_config(tmp_path: Path) -> None:
    save(
        tmp_path,
        byte_level_backend(),
        tokenizer_config={"chat_template": "config"},
        chat_template={"chat_template": "json"},
    )
    assert chat(load_hf_tokenizer(tmp_path)) == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert chat(load_hf_tokenizer(tmp_path)) == "jinja"
    assert chat(load_hf_tokenizer(tmp_path), tools=[{"type": "function"}]) == "tools"


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"expected a tokenizer\.json"):
        load_hf_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model": {"type": "BPE"}}', "\0\1"])
def test_a_broken_tokenizer_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(MalformedModelError, match=r"tokenizer\.json: not a tokenizer"):
        load_hf_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"tokenizer_config\.json: not valid JSON"),
        ("[1]", "expected an object, got list"),
        ('{"added_tokens_decoder": {"x": {"content": "a"}}}', "added_tokens_decoder"),
        ('{"chat_template": 5}', "chat_template: expected"),
        ('{"chat_template": [5]}', "chat_template: expected"),
    ],
)
def test_a_broken_config_is_named(tmp_path: Path, content: str, message: str) -> None:
    save(tmp_path, byte_level_backend())
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(MalformedModelError, match=message):
        load_hf_tokenizer(tmp_path)


def test_other_kinds_of_tokenizer_are_named(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    with pytest.raises(UnsupportedModelError, match="got none"):
        load_hf_tokenizer(save(tmp_path, backend))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModelError, match="got WordPiece"):
        load_hf_tokenizer(save(tmp_path, backend))

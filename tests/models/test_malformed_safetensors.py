"""Model directories that are broken: each a clear error that names the file and what is wrong in it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_models
from octavo.errors import (
    MalformedModelError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from octavo.models.checkpoint import open_checkpoint

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.make_hf(tmp_path / "model", "llama", layers=1)


def edit_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def put(text: bytes, offset: int = 0) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:offset] + text + data[offset + len(text) :])

    return change


def with_entry(**values: Any) -> Callable[[Path], None]:
    return lambda path: edit_header(path, lambda header: header[NORM].update(values))


def rename(old: str, new: str) -> Callable[[Path], None]:
    return lambda path: edit_header(path, lambda header: header.update({new: header.pop(old)}))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


CASES: dict[str, tuple[Callable[[Path], None], type[ModelError], str]] = {
    "empty": (lambda p: p.write_bytes(b"") and None, MalformedModelError, "at offset 0: expected the length of a header"),
    "seven bytes": (lambda p: p.write_bytes(b"1234567") and None, MalformedModelError, "at offset 0"),
    "header longer than the file": (put(struct.pack("<Q", 2**62)), MalformedModelError, "at offset 0: .*got 4611686018427387904"),
    "header is not JSON": (put(b"][", 8), MalformedModelError, "at offset 8: bad safetensors header"),
    "header is not UTF-8": (put(b"\xff\xfe", 12), MalformedModelError, "at offset 8"),
    "truncated": (cut, MalformedModelError, "at offset 8: bad safetensors header"),
    "offsets outside": (with_entry(data_offsets=[0, 10**9]), MalformedModelError, "at offset 8"),
    "offsets reversed": (with_entry(data_offsets=[100, 0]), MalformedModelError, "at offset 8"),
    "offsets do not fit the shape": (with_entry(shape=[63]), MalformedModelError, "at offset 8"),
    "negative shape": (with_entry(shape=[-64]), MalformedModelError, "at offset 8"),
    "wrong shape": (with_entry(shape=[32, 2]), MalformedModelError, r"'model.norm.weight': expected shape \[64\], got \[32, 2\]"),
    "type of no use": (with_entry(dtype="I32"), UnsupportedModelError, "'model.norm.weight' has type I32, which is not supported; supported: F32"),
    "type of nobody": (with_entry(dtype="Q9"), MalformedModelError, "at offset 8"),
    "tensor missing": (rename(NORM, "something.else"), MalformedModelError, "tensor 'model.norm.weight' is missing"),
    "tensor too many": (rename("lm_head.weight", "lm_head.bias"), MalformedModelError, "'lm_head.weight' is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_names_what_is_wrong(model: Path, case: str) -> None:
    change, error, message = CASES[case]
    change(model / WEIGHTS)
    with pytest.raises(error, match=message) as caught:
        open_checkpoint(model)
    assert str(model) in str(caught.value)


def test_numbers_that_are_none(model: Path) -> None:
    data = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(data[:-4] + struct.pack("<f", float("nan")))
    checkpoint = open_checkpoint(model)
    last = max(checkpoint.tensors.values(), key=lambda w: w.data.ctypes.data).name
    with pytest.raises(MalformedModelError, match=f"{last}.*got a NaN or infinite value in row"):
        checkpoint.tensor(last)


def test_a_bias_that_the_settings_do_not_tell_of(tmp_path: Path) -> None:
    path = tiny_models.make_hf(tmp_path, "llama", attention_bias=True)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "attention_bias": False}))
    with pytest.raises(UnsupportedModelError, match=r"proj.bias' has no place in LlamaForCausalLM"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a JSON file"),
        ('{"architectures": ', "line 1 column"),
        ("[1, 2]", "expected a JSON object, got list"),
        ("[" * 100_000, "expected a JSON file"),
        ("\udc80", "expected a JSON file"),
    ],
)
def test_config_that_is_not_json(model: Path, text: str, message: str) -> None:
    (model / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(MalformedModelError, match=message) as caught:
        open_checkpoint(model)
    assert "config.json" in str(caught.value)


def test_config_of_another_model(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "intermediate_size": 100}))
    with pytest.raises(MalformedModelError, match=r"expected shape \[100, 64\], got \[128, 64\]"):
        open_checkpoint(model)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map: expected an object"),
        ({"weight_map": []}, "weight_map: expected an object"),
        ({"weight_map": {NORM: 7}}, "expected the name of a file beside it, got 7"),
        ({"weight_map": {NORM: "../model.safetensors"}}, "expected the name of a file beside it"),
        ({"weight_map": {NORM: "gone.safetensors"}}, "gone.safetensors, which is missing"),
        ({"weight_map": {"model.x": WEIGHTS}}, "has no tensor 'model.x'"),
    ],
)
def test_index(model: Path, index: dict[str, Any], message: str) -> None:
    (model / INDEX).write_text(json.dumps(index))
    with pytest.raises(MalformedModelError, match=message):
        open_checkpoint(model)


def test_missing_shard(tmp_path: Path) -> None:
    path = tiny_models.make_hf(tmp_path, "llama", shards=2)
    (path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(
        MalformedModelError, match=r"model-00002-of-00002\.safetensors, which is missing"
    ):
        open_checkpoint(path)


def test_pickles_are_refused(model: Path) -> None:
    (model / WEIGHTS).rename(model / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match=r"pickle can run any code.*save_pretrained"):
        open_checkpoint(model)
    with pytest.raises(UnsupportedModelError, match="weights alone do not say what the model is"):
        open_checkpoint(model / "pytorch_model.bin")


def test_directories_without_a_model(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"expected config\.json with"):
        open_checkpoint(tmp_path)
    (model / WEIGHTS).rename(model / "weights.txt")
    with pytest.raises(ModelNotFoundError, match=r"expected model\.safetensors, .* found none"):
        open_checkpoint(model)
    for name in ("a.safetensors", "b.safetensors"):
        (model / name).write_bytes(b"")
    with pytest.raises(MalformedModelError, match=r"got a\.safetensors, b\.safetensors"):
        open_checkpoint(model)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    path = tiny_models.make_hf(
        tmp_path_factory.mktemp("fuzz"), "llama", layers=1, vocab_size=259, hidden=16, ffn=16
    )
    names = (WEIGHTS, "config.json", "generation_config.json")
    return path, {name: (path / name).read_bytes() for name in names}


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from((WEIGHTS, "config.json", "generation_config.json")),
    edits=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=3),
    end=st.one_of(st.none(), st.integers(0, 3000)),
)
def test_damage_is_an_error_of_ours_or_harmless(
    fuzzed: tuple[Path, dict[str, bytes]],
    name: str,
    edits: list[tuple[int, int]],
    end: int | None,
) -> None:
    path, files = fuzzed
    data = bytearray(files[name])
    for offset, byte in edits:
        data[offset % len(data)] = byte
    (path / name).unlink()  # a new file: the old one may still be mapped
    (path / name).write_bytes(bytes(data[:end]))
    message = str(path)
    try:
        checkpoint = open_checkpoint(path)
        for tensor in checkpoint.tensors:
            checkpoint.tensor(tensor)
    except ModelError as error:
        message = str(error)
    finally:
        (path / name).unlink()
        (path / name).write_bytes(files[name])
    assert str(path) in message

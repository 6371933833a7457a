"""GGUF files: the reader against the gguf package, names, specs, the checkpoint around them."""

from __future__ import annotations

import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

import tiny_models
from octavo.errors import ModelNotFoundError
from octavo.models.checkpoint import open_checkpoint
from octavo.models.formats import FORMATS, row_bytes
from octavo.models.gguf_file import read_gguf
from octavo.models.names import name_from_gguf, weight_shapes
from tiny_gguf import gguf_name, interleave


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_those_of_the_gguf_package(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    block, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    form = FORMATS[name]
    assert (form.ggml_id, form.block, form.block_bytes) == (int(kind), block, num_bytes)
    assert row_bytes(name, 3 * block) == 3 * num_bytes
    assert block == 1 or row_bytes(name, 3 * block + 1) is None


@pytest.mark.parametrize("qtype", FORMATS)
def test_reader_agrees_with_the_gguf_package(folder: Path, qtype: str) -> None:
    path = tiny_models.make_gguf(folder / f"{qtype}.gguf", "qwen3", qtype)
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert dict(ours.metadata) == keys
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for tensor in theirs.tensors:
        weight = ours.tensors[tensor.name]
        assert weight.type == tensor.tensor_type.name
        assert weight.shape == tuple(reversed(tensor.shape.tolist()))
        assert weight.data.tobytes() == tensor.data.tobytes()
        assert weight.data.shape == (
            int(np.prod(weight.shape[:-1])),
            row_bytes(weight.type, weight.shape[-1]),
        )


def test_every_kind_of_metadata_value(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 2**32 - 1)
    writer.add_int32("a.i32", -(2**31))
    writer.add_uint64("a.u64", 2**64 - 1)
    writer.add_int64("a.i64", -(2**63))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.yes", True)
    writer.add_string("a.text", "سلام 👋")
    writer.add_array("a.bools", [True, False, True])
    writer.add_array("a.floats", [0.5, -1.5])
    writer.add_array("a.strings", ["", "x", "🎉"])
    writer.add_array("a.nested", [[1, 2], [3], [4, 5]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = read_gguf(tmp_path / "m.gguf").metadata
    assert {k: v for k, v in metadata.items() if k.startswith("a.")} == {
        "a.u8": 200,
        "a.i8": -100,
        "a.u16": 60000,
        "a.i16": -30000,
        "a.u32": 2**32 - 1,
        "a.i32": -(2**31),
        "a.u64": 2**64 - 1,
        "a.i64": -(2**63),
        "a.f32": 0.5,
        "a.f64": 0.1,
        "a.yes": True,
        "a.text": "سلام 👋",
        "a.bools": [True, False, True],
        "a.floats": [0.5, -1.5],
        "a.strings": ["", "x", "🎉"],
        "a.nested": [[1, 2], [3], [4, 5]],
    }
    assert metadata["a.yes"] is True


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_weights_are_those_of_the_directory_under_the_same_names(folder: Path, family: str) -> None:
    sizes = tiny_models.Sizes(family=family, head_dim=32)
    path = tiny_models.make_gguf(folder / f"{family}.gguf", family, "F32", head_dim=32)
    checkpoint = open_checkpoint(path)
    expected = tiny_models.random_weights(sizes)
    assert set(checkpoint.tensors) == set(expected) == set(weight_shapes(checkpoint.spec))
    for name, values in expected.items():
        if checkpoint.spec.rope.interleaved and (".q_proj" in name or ".k_proj" in name):
            values = interleave(values, values.shape[0] // 32)
        weight = checkpoint.tensor(name)
        assert weight.name == name
        assert weight.shape == values.shape
        assert weight.data.tobytes() == values.tobytes()
        assert not weight.data.flags.owndata
        assert not weight.data.flags.writeable


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_spec_is_that_of_the_directory(folder: Path, family: str) -> None:
    settings = {"theta": 5e5, "eps": 0.5, "head_dim": 32, "max_position": 300}
    one = open_checkpoint(
        tiny_models.make_gguf(folder / f"spec-{family}.gguf", family, "Q8_0", **settings)
    ).spec
    other = open_checkpoint(tiny_models.make_hf(folder / family, family, **settings)).spec
    same = ("family num_layers hidden_size intermediate_size num_heads num_kv_heads head_dim vocab_size "
            "rms_eps max_position qkv_bias o_bias mlp_bias qk_norm tied_embeddings sliding_window")  # fmt: skip
    for name in same.split():
        assert getattr(one, name) == getattr(other, name), name
    assert one.rope.theta == other.rope.theta == 5e5
    assert one.rope.rotary_dim == other.rope.rotary_dim == 32
    assert one.rope.interleaved == (one.family == "llama")
    assert not other.rope.interleaved


def test_rope_scalings(folder: Path) -> None:
    def rope(**settings: object) -> object:
        return open_checkpoint(
            tiny_models.make_gguf(folder / "rope.gguf", "llama", **settings)
        ).spec.rope

    linear = rope(rope={"rope_type": "linear", "factor": 4.0})
    assert (linear.kind, linear.factor) == ("linear", 4.0)
    yarn = rope(rope=tiny_models.YARN, max_position=256)
    assert (yarn.kind, yarn.factor, yarn.original_max_position) == ("yarn", 4.0, 64)
    assert yarn.attention_factor == pytest.approx(1 + 0.1 * np.log(4.0))
    llama3 = rope(rope=tiny_models.LLAMA3)
    assert llama3.kind == "none"
    assert llama3.freq_factors is not None
    assert len(llama3.freq_factors) == 8
    assert llama3.freq_factors[0] == 1.0
    assert llama3.freq_factors[-1] == 8.0


def test_tied_head_is_the_embedding(folder: Path) -> None:
    tied = open_checkpoint(tiny_models.make_gguf(folder / "tied.gguf", "llama", tied=True))
    assert tied.spec.tied_embeddings
    assert tied.has("lm_head.weight")
    assert tied.tensor("lm_head.weight") is tied.tensor("model.embed_tokens.weight")
    untied = open_checkpoint(tiny_models.make_gguf(folder / "untied.gguf", "llama"))
    assert untied.tensor("lm_head.weight").name == "lm_head.weight"
    assert not untied.has("model.layers.0.self_attn.q_proj.bias")


def test_what_the_tokenizer_needs_is_there(folder: Path) -> None:
    checkpoint = open_checkpoint(tiny_models.make_gguf(folder / "tokens.gguf", "qwen2"))
    metadata = checkpoint.gguf_metadata
    assert metadata is not None
    assert metadata["tokenizer.ggml.tokens"][:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert "<|im_start|>" in metadata["tokenizer.chat_template"]
    assert checkpoint.directory is None
    assert checkpoint.eos_token_ids == (2, 0)  # the named one, then <|endoftext|>


def test_fingerprint_tells_models_apart_and_not_places(folder: Path, tmp_path: Path) -> None:
    def fingerprint(**settings: object) -> str:
        path = tiny_models.make_gguf(folder / "print.gguf", "llama", **settings)
        return open_checkpoint(path).fingerprint

    first = fingerprint()
    copy = shutil.copy(folder / "print.gguf", tmp_path / "copy.gguf")
    assert open_checkpoint(Path(copy)).fingerprint == first
    prints = {first, fingerprint(seed=1), fingerprint(qtype="Q4_0"), fingerprint(theta=1e5)}
    assert len(prints) == 4


def test_a_directory_with_one_gguf_file_will_do(tmp_path: Path) -> None:
    path = tiny_models.make_gguf(tmp_path / "a.gguf", "llama")
    assert open_checkpoint(tmp_path).path == path
    shutil.copy(path, tmp_path / "b.gguf")
    with pytest.raises(ModelNotFoundError, match=r"found 2; name one of them: a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


def test_sampling_defaults(folder: Path) -> None:
    path = folder / "plain.gguf"
    assert open_checkpoint(tiny_models.make_gguf(path, "llama")).generation_config == {}


def test_names_map_back() -> None:
    sizes = tiny_models.Sizes(family="qwen3", attention_bias=True)
    for name in tiny_models.random_weights(sizes):
        assert name_from_gguf(gguf_name(name)) == name
    assert name_from_gguf("blk.0.attn_sinks.weight") is None
    assert name_from_gguf("blk.00.attn_q.weight") is None


def test_the_default_model(default_model_path: Path) -> None:
    checkpoint = open_checkpoint(default_model_path)
    spec = checkpoint.spec
    assert (spec.family, spec.num_layers, spec.hidden_size) == ("llama", 30, 576)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (9, 3, 64)
    assert (spec.vocab_size, spec.max_position, spec.tied_embeddings) == (49152, 8192, True)
    assert checkpoint.tensor("model.layers.29.mlp.down_proj.weight").type == "Q4_1"
    assert checkpoint.tensor("model.embed_tokens.weight").type == "Q8_0"
    assert checkpoint.eos_token_ids[0] == 2

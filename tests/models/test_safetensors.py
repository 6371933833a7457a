"""Directories in Hugging Face's layout: tensors, shards, settings old and new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import tiny_models
from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.models.checkpoint import open_checkpoint
from octavo.models.names import weight_shapes
from octavo.models.spec import ModelSpec
from octavo.models.spec_hf import spec_from_hf
from octavo.ops.formats import dequantize

ROUNDING = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hf")


@pytest.mark.parametrize("variant", tiny_models.VARIANTS)
def test_every_variant_opens_with_its_weights(folder: Path, variant: str) -> None:
    checkpoint = open_checkpoint(tiny_models.make_variant(folder / variant, variant))
    family, settings = tiny_models.VARIANTS[variant]
    dtype = settings.get("dtype", "float32")
    sizes = {k: v for k, v in settings.items() if k not in ("dtype", "shards")}
    expected = tiny_models.random_weights(tiny_models.Sizes(family=family, **sizes))
    assert set(checkpoint.tensors) == set(expected) == set(weight_shapes(checkpoint.spec))
    for name, values in expected.items():
        weight = checkpoint.tensor(name)
        assert (weight.type, weight.shape) == (tiny_models.DTYPES[dtype], values.shape)
        assert not weight.data.flags.owndata
        np.testing.assert_allclose(dequantize(weight), values, rtol=ROUNDING[dtype], atol=1e-6)
    assert checkpoint.directory == checkpoint.path
    assert checkpoint.gguf_metadata is None
    assert checkpoint.eos_token_ids == (2,)
    assert checkpoint.size_bytes == sum(w.data.nbytes for w in checkpoint.tensors.values())


def test_bytes_are_those_that_the_library_reads(folder: Path) -> None:
    path = tiny_models.make_hf(folder / "library", "llama", dtype="float16")
    checkpoint = open_checkpoint(path)
    for name, values in load_file(path / "model.safetensors").items():
        assert checkpoint.tensor(name).data.tobytes() == values.tobytes()


def test_shards_make_the_same_model(folder: Path) -> None:
    one = open_checkpoint(tiny_models.make_hf(folder / "one", "qwen2"))
    three = open_checkpoint(tiny_models.make_hf(folder / "three", "qwen2", shards=3))
    assert one.fingerprint == three.fingerprint
    assert len(list((folder / "three").glob("*.safetensors"))) == 3


def test_tied_head_in_the_file_is_not_used(folder: Path) -> None:
    path = tiny_models.make_hf(folder / "both", "llama")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensor("lm_head.weight").name == "model.embed_tokens.weight"


def test_sampling_defaults_of_the_author(folder: Path) -> None:
    path = tiny_models.make_hf(folder / "sampling", "llama")
    settings = {"eos_token_id": [5, 2, 9999], "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    target = path / "generation_config.json"
    target.write_text(json.dumps({**settings, "do_sample": True}))
    checkpoint = open_checkpoint(path)
    assert checkpoint.generation_config == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert checkpoint.eos_token_ids == (5, 2)  # 9999 is outside the vocabulary
    target.write_text(json.dumps({**settings, "do_sample": False}))
    assert open_checkpoint(path).generation_config == {}
    target.write_text(json.dumps({"do_sample": True, "temperature": "hot"}))
    with pytest.raises(MalformedModelError, match=r"temperature: expected a number, got 'hot'"):
        open_checkpoint(path)


def spec(family: str = "llama", **changes: Any) -> ModelSpec:
    """The spec of a tiny config.json with some settings changed; the value `...` removes one."""
    config = {**tiny_models.hf_config(tiny_models.Sizes(family=family)), **changes}
    return spec_from_hf({k: v for k, v in config.items() if v is not ...}, "config.json")


@pytest.mark.parametrize(
    "rope",
    [
        None,
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        tiny_models.YARN,
        tiny_models.LLAMA3,
    ],
)
def test_rope_settings_old_and_new_mean_the_same(rope: dict[str, Any] | None) -> None:
    sizes = tiny_models.Sizes(family="llama", theta=5e5, rope=rope)
    new = spec_from_hf(tiny_models.hf_config(sizes), "new")
    old = spec_from_hf(tiny_models.hf_config(sizes, old_rope=True), "old")
    assert new == old
    assert new.rope.theta == 5e5
    assert new.rope.kind == (rope["rope_type"] if rope else "none")


def test_oldest_name_of_the_rope_type() -> None:
    found = spec(rope_parameters=..., rope_theta=1e4, rope_scaling={"type": "linear", "factor": 2})
    assert (found.rope.kind, found.rope.factor, found.max_position) == ("linear", 2.0, 1024)


def test_context_length_of_stretched_models() -> None:
    assert spec(rope_parameters=tiny_models.LLAMA3).max_position == 512
    yarn = {**tiny_models.YARN, "original_max_position_embeddings": 512}
    assert spec(rope_parameters=yarn).max_position == 2048
    assert spec(rope_parameters=tiny_models.YARN).max_position == 512
    dynamic = spec(rope_parameters={"rope_type": "dynamic", "factor": 3.0})
    assert (dynamic.max_position, dynamic.rope.original_max_position) == (1536, 512)


def test_yarn_temperature() -> None:
    def factor(**settings: float) -> float:
        return spec(rope_parameters={**tiny_models.YARN, **settings}).rope.attention_factor

    assert factor() == pytest.approx(1 + 0.1 * np.log(4))
    assert factor(attention_factor=0.7) == 0.7
    assert factor(mscale=1.0, mscale_all_dim=0.5) == pytest.approx(
        (1 + 0.1 * np.log(4)) / (1 + 0.05 * np.log(4))
    )


def test_sliding_windows_only_where_used() -> None:
    assert spec("llama", sliding_window=64).sliding_window is None
    assert spec("mistral", sliding_window=64).sliding_window == 64
    assert spec("mistral", sliding_window=None).sliding_window is None
    assert spec("mistral", sliding_window=4096).sliding_window is None  # longer than the context
    qwen = {"sliding_window": 64, "use_sliding_window": True}
    assert spec("qwen2", **qwen, max_window_layers=1).sliding_window == 64
    assert spec("qwen2", **qwen, max_window_layers=2).sliding_window is None
    assert spec("qwen2", **{**qwen, "use_sliding_window": False}).sliding_window is None
    full = {"layer_types": ["full_attention"] * 2}
    assert spec("qwen3", **qwen, max_window_layers=0, **full).sliding_window is None


def test_layers_with_and_without_a_window() -> None:
    mistral = spec("mistral", sliding_window=64)
    assert [mistral.window_of(i) for i in range(2)] == [64, 64]
    assert mistral.kv_window == 64
    qwen = {"sliding_window": 64, "use_sliding_window": True}
    some = spec("qwen2", **qwen, max_window_layers=1)
    assert [some.window_of(i) for i in range(2)] == [None, 64]
    assert some.kv_window is None
    named = spec("qwen3", **qwen, layer_types=["sliding_attention", "full_attention"])
    assert [named.window_of(i) for i in range(2)] == [64, None]
    for wrong in (["full_attention"], ["full_attention", "chunked_attention"], "sliding_attention"):
        with pytest.raises(MalformedModelError, match=r"layer_types: expected 2 of full_attention"):
            spec("qwen3", **qwen, layer_types=wrong)


def test_optional_parts_and_defaults() -> None:
    assert spec("qwen2").qkv_bias
    assert not spec("qwen2").o_bias
    biased = spec("qwen3", attention_bias=True)
    assert (biased.qkv_bias, biased.o_bias, biased.qk_norm) == (True, True, True)
    assert spec("llama", mlp_bias=True).mlp_bias
    assert spec("llama", num_key_value_heads=...).num_kv_heads == 4
    assert spec("llama", head_dim=...).head_dim == 16
    assert spec("qwen3", head_dim=...).head_dim == 128


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, UnsupportedModelError, r"GPT2LMHeadModel is not supported; supported: LlamaForCausalLM, Mistral"),
        ({"architectures": ...}, MalformedModelError, "architectures: expected a list"),
        ({"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, UnsupportedModelError, "'gptq'"),
        ({"rope_parameters": {"rope_type": "longrope"}}, UnsupportedModelError, "'longrope'"),
        ({"rope_parameters": {"rope_type": "linear"}}, MalformedModelError, "factor is missing"),
        ({"rope_parameters": {"rope_theta": "big"}}, MalformedModelError, "rope_theta: expected a number"),
        ({"rope_parameters": {**tiny_models.LLAMA3, "low_freq_factor": 4.0}}, MalformedModelError, "low_freq_factor below"),
        ({"rope_parameters": [1]}, MalformedModelError, "expected an object"),
        ({"hidden_size": -64}, MalformedModelError, "hidden_size: expected a whole number from 1"),
        ({"hidden_size": True}, MalformedModelError, "hidden_size"),
        ({"num_hidden_layers": 10**9}, MalformedModelError, "num_hidden_layers"),
        ({"vocab_size": "512"}, MalformedModelError, "vocab_size.*'512'"),
        ({"intermediate_size": ...}, MalformedModelError, "intermediate_size is missing"),
        ({"num_key_value_heads": 3}, MalformedModelError, "4 heads and 3 key/value heads"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": ...}, MalformedModelError, "multiple of num_attention_heads"),
        ({"head_dim": 15}, MalformedModelError, "even number of rotary dimensions"),
        ({"rms_norm_eps": float("nan")}, MalformedModelError, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, MalformedModelError, "true or false"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spec(**changes)


def test_what_attention_to_a_token_costs() -> None:
    model = spec("llama")
    layer = model.hidden_size * (2 * model.q_size + 2 * model.kv_size)
    layer += 3 * model.hidden_size * model.intermediate_size
    assert model.attention_weight == pytest.approx(2 * model.num_heads * model.head_dim / layer)

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from octavo import __version__
from octavo.config import ModelConfig
from octavo.models.checkpoint import open_checkpoint
from octavo.runner.fingerprint import Fingerprint, fingerprint
from octavo.runner.kv_storage import KVShape
from tests.runner.fakes import ops
from tests.tiny_models import make_hf

SHAPE = KVShape(num_layers=2, num_kv_heads=1, head_dim=4, block_size=16, dtype="float16")


def of(path, config=None, shape=SHAPE, op_set=ops, max_model_len=512, **kwargs) -> Fingerprint:
    config = config or ModelConfig(model=str(path))
    kwargs.setdefault("version", __version__)
    return fingerprint(open_checkpoint(path), config, shape, op_set, max_model_len, **kwargs)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_hf(tmp_path_factory.mktemp("m") / "tiny-llama", "llama")


def test_it_is_the_same_each_time_and_whatever_the_name(model):
    first = of(model)
    assert of(model).digest == first.digest
    assert of(model, name="other", max_model_len=99).digest == first.digest
    assert of(model, name="other").model == "other"
    assert first.model == "tiny-llama"
    assert len(first.digest) == 64


def test_whatever_changes_a_blocks_bytes_changes_it(model):
    class Other:
        name = "cpu-avx512"

    found = {
        of(model).digest,
        of(model, ModelConfig(model=str(model), quantization="q8")).digest,
        of(model, ModelConfig(model=str(model), dtype="float32")).digest,
        of(model, shape=KVShape(2, 1, 4, 32, "float16")).digest,
        of(model, shape=KVShape(2, 1, 4, 16, "float32")).digest,
        of(model, op_set=Other()).digest,
        of(model, version="0.0.1").digest,
    }
    assert len(found) == 7


def test_other_weights_and_another_tokenizer(tmp_path):
    path = make_hf(tmp_path / "a", "llama")
    before = of(path)
    tokenizer = path / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    with_other_tokenizer = of(path)
    assert with_other_tokenizer.digest != before.digest
    assert with_other_tokenizer.weights == before.weights
    # One weight in the middle, which the sample does not see: the file's time of change does.
    weights = next(path.glob("*.safetensors"))
    data = np.memmap(weights, np.uint8, "r+")
    data[len(data) * 2 // 3] ^= 1
    data.flush()
    os.utime(weights)
    assert of(path).digest != with_other_tokenizer.digest


def test_stretched_positions_count_where_they_depend_on_the_context(tmp_path):
    path = make_hf(tmp_path / "d", "llama")
    config = json.loads((path / "config.json").read_text())
    config["rope_parameters"] |= {"rope_type": "dynamic", "factor": 2.0}
    (path / "config.json").write_text(json.dumps(config))
    assert of(path, max_model_len=512).digest != of(path, max_model_len=1024).digest

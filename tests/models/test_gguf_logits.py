"""A GGUF file and a directory of the same weights give the same logits: names, q/k layout and rope settings agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_models
from octavo.models.checkpoint import open_checkpoint
from octavo.models.loader import load_model
from octavo.ops.reference import ReferenceOps
from tests.models.drive import logits_of

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in tiny_models.FAMILIES},
    "tied": ("llama", {"tied": True}),
    "wide heads": ("mistral", {"head_dim": 32}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "linear": ("llama", {"rope": {"rope_type": "linear", "factor": 2.0}}),
    "yarn": ("qwen2", {"rope": tiny_models.YARN, "max_position": 256}),
    "llama3": ("llama", {"rope": tiny_models.LLAMA3}),
}


def logits(path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    tokens = np.random.default_rng(3).integers(0, 512, 100).tolist()
    return logits_of(load_model(open_checkpoint(path), ReferenceOps(), max_model_len=128), tokens)


@pytest.mark.parametrize("case", CASES)
def test_same_weights_same_logits(tmp_path: Path, case: str) -> None:
    family, settings = CASES[case]
    directory = tiny_models.make_hf(tmp_path / "hf", family, **settings)
    file = tiny_models.make_gguf(tmp_path / "model.gguf", family, "F32", **settings)
    expected = logits(directory)
    assert expected.std() > 1.0
    np.testing.assert_allclose(logits(file), expected, atol=2e-3)
    other = tiny_models.make_hf(tmp_path / "other", family, seed=1, **settings)
    assert np.abs(logits(other) - expected).max() > 1.0

"""Shapes of real models (widths, heads, inner sizes; random weights, a layer or two, a small vocabulary).

Nothing may be tuned to the default model: bits must not depend on chunks, company or threads at these shapes either, and
the numbers must be those of the reference set.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.models.checkpoint import open_checkpoint
from octavo.models.decoder import Model
from octavo.models.loader import load_model
from octavo.ops.base import F32, Ops
from octavo.ops.reference import ReferenceOps
from octavo.ops.select import make_ops
from tests.models.drive import Run, logits_of, make_batch, new_kv
from tiny_models import LLAMA3, make_gguf, make_hf

cpu = pytest.importorskip("octavo.ops.cpu", reason="the native kernels are not built")

LLAMA3_ROPE = {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192}

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.2-1b": (
        "llama",
        {"hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "layers": 2, "tied": True,
         "theta": 500000.0, "rope": LLAMA3_ROPE},
    ),
    "qwen2.5-1.5b": (
        "qwen2",
        {"hidden": 1536, "heads": 12, "kv_heads": 2, "ffn": 8960, "layers": 1, "tied": True,
         "theta": 1000000.0, "eps": 1e-6},
    ),
    "llama-3.1-8b": (
        "llama",
        {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "layers": 1,
         "theta": 500000.0, "rope": {**LLAMA3_ROPE, "factor": 8.0}},
    ),
}  # fmt: skip
SLOW = ("llama-3.1-8b",)
FORMATS = ("bf16 to q4", "Q4_K")
TOKENS = [int(t) for t in np.random.default_rng(2).integers(0, 512, 75)]
PART = 20  # tokens that the reference set computes


def load(path: Path, ops: Ops, **settings: Any) -> Model:
    if path.is_dir() and not settings:
        settings = {"quantization": "q4"}
    return load_model(open_checkpoint(path), ops, max_model_len=128, **settings)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (shape, format), marks=pytest.mark.slow if shape in SLOW else (), id=f"{shape} {format}"
        )
        for shape in SHAPES
        for format in FORMATS
    ],
)
def path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The model's directory or file; gone after its tests."""
    shape, format = request.param
    family, sizes = SHAPES[shape]
    folder = tmp_path_factory.mktemp("shape")
    if format == "Q4_K":
        yield make_gguf(folder / "model.gguf", family, format, **sizes)
    else:
        yield make_hf(folder / "model", family, dtype="bfloat16", **sizes)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return load(path, cpu.CpuOps(2))


@pytest.fixture(scope="module")
def whole(model: Model) -> F32:
    """Logits [75, V], computed at once."""
    return logits_of(model, TOKENS, kv_dtype="float16")


def test_chunks_change_no_bit(model: Model, whole: F32) -> None:
    for chunk in (1, 7, 16, 33):
        got = logits_of(model, TOKENS, kv_dtype="float16", chunk=chunk)
        np.testing.assert_array_equal(got, whole)


def test_company_changes_no_bit(model: Model, whole: F32) -> None:
    """The sequence's prompt in two chunks beside others, then tokens alone; its tiles lie scattered."""
    kv = new_kv(model, 24, "float16")
    tiles, others = [17, 3, 20, 8, 11], [[0, 1, 2, 4, 5], [6, 7, 9, 10, 12], [13, 14, 15, 16, 18]]
    got = []
    cuts = (0, 19, 60, 61, 62, 75)
    for start, end in itertools.pairwise(cuts):
        runs = [Run(TOKENS[::-1][start:end], start, o) for o in others]
        runs.insert(2, Run(TOKENS[start:end], start, tiles))
        rows = range(2 * (end - start), 3 * (end - start))
        got.append(model.forward(make_batch(model.ops, kv, runs, rows)))
    np.testing.assert_array_equal(np.concatenate(got), whole)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(path: Path, whole: F32, threads: int) -> None:
    other = load(path, cpu.CpuOps(threads))
    np.testing.assert_array_equal(logits_of(other, TOKENS, kv_dtype="float16"), whole)


def test_close_to_the_reference(path: Path, whole: F32) -> None:
    """With the same weights: the integer kernels alone round activations, to 8 bits; the float kernels do not."""
    expected = logits_of(load(path, ReferenceOps(2)), TOKENS[:PART], kv_dtype="float16")
    spread = expected.std()
    error = whole[:PART] - expected
    print(f"integer kernels: error {error.std() / spread:.4f} of the spread")
    assert error.std() < 0.03 * spread
    if path.is_dir():
        return
    floats = load(path, make_ops("cpu", 2, may_round=False), dtype="float32")
    error = logits_of(floats, TOKENS[:PART], kv_dtype="float16") - expected
    print(f"float kernels: largest error {np.abs(error).max() / spread:.2e} of the spread")
    assert np.abs(error).max() < 2e-3 * spread

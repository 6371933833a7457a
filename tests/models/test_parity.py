"""Models against transformers in float32: goldens made by tests/make_goldens.py.

With weights dequantised to float32 and KV in float32, every stored log-probability is met within 1e-3: the tiny models on
every op set, the default model on the native one. With 4-bit weights and float16 KV, perplexity is within 1 %.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from golden_models import GGUF_MODELS, ROPE_CASES, VARIANTS, make_golden_model
from octavo.models.checkpoint import open_checkpoint
from octavo.models.decoder import Model
from octavo.models.loader import load_model
from octavo.models.rope import inverse_frequencies
from octavo.models.spec_hf import spec_from_hf
from octavo.ops.base import Ops
from octavo.ops.reference import ReferenceOps
from tests.models.drive import log_softmax, logits_of, negative_log_likelihood

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
TOLERANCE = 1e-3


@cache
def goldens(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDENS / f"{name}.npz") as file:
        return dict(file)


def tiny_golden(name: str) -> dict[str, np.ndarray]:
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in goldens("tiny").items() if k.startswith(prefix)}


def make_ops(kind: str) -> Ops:
    if kind == "reference":
        return ReferenceOps(2)
    cpu = pytest.importorskip("octavo.ops.cpu", reason="native kernels are not built")
    return cpu.CpuOps(2)  # type: ignore[no-any-return]


def largest_difference(model: Model, golden: dict[str, np.ndarray], chunk: int) -> float:
    """Over all prompts: stored top and next-token log-probabilities against the model's."""
    worst, row, following = 0.0, 0, 0
    start = 0
    for length in golden["lengths"].tolist():
        tokens = golden["tokens"][start : start + length].tolist()
        values = log_softmax(logits_of(model, tokens, chunk=chunk))
        ids = golden["top_ids"][row : row + length].astype(np.int64)
        top = np.take_along_axis(values, ids, axis=1) - golden["top_logprobs"][row : row + length]
        next_golden = golden["next_logprobs"][following : following + length - 1]
        rest = values[np.arange(length - 1), tokens[1:]] - next_golden
        worst = max(worst, float(np.abs(top).max()), float(np.abs(rest).max(initial=0.0)))
        start, row, following = start + length, row + length, following + length - 1
    assert start == len(golden["tokens"])
    return worst


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("name", [*VARIANTS, *GGUF_MODELS])
def test_tiny_models(name: str, kind: str, tmp_path: Path) -> None:
    golden = tiny_golden(name)
    checkpoint = open_checkpoint(make_golden_model(tmp_path, name))
    model = load_model(
        checkpoint, make_ops(kind), dtype="float32", max_model_len=int(golden["lengths"].max())
    )
    difference = largest_difference(model, golden, chunk=33)
    print(f"{name} {kind}: {difference:.2e}")
    assert difference < TOLERANCE


@pytest.mark.parametrize("name", [n for n in GGUF_MODELS if not n.endswith("f16")])
def test_tiny_models_on_quantised_kernels(name: str, tmp_path: Path) -> None:
    """8-bit activations cost a random network some accuracy; a format misread costs all of it."""
    golden = tiny_golden(name)
    length = int(golden["lengths"][-1])
    tokens = golden["tokens"][-length:].tolist()
    checkpoint = open_checkpoint(make_golden_model(tmp_path, name))
    model = load_model(checkpoint, make_ops("cpu"), max_model_len=length)
    values = log_softmax(logits_of(model, tokens, kv_dtype="float16"))
    expected = golden["next_logprobs"][-(length - 1) :]
    error = np.abs(values[np.arange(length - 1), tokens[1:]] - expected).mean()
    print(f"{name}: {error:.3f} of a spread of {expected.std():.2f}")
    assert error < 0.06 * expected.std()


@pytest.mark.parametrize("name", ROPE_CASES)
def test_rope_frequencies(name: str) -> None:
    config, longest = ROPE_CASES[name]
    rope = spec_from_hf(config, "config.json").rope
    golden = goldens("rope")
    # transformers computes powers in float32
    np.testing.assert_allclose(
        inverse_frequencies(rope, longest), golden[f"{name}/inv_freq"], rtol=2e-6
    )
    assert rope.attention_factor == pytest.approx(float(golden[f"{name}/scale"]), rel=1e-9)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_default_model(kind: str, default_model_path: Path) -> None:
    checkpoint = open_checkpoint(default_model_path)
    model = load_model(checkpoint, make_ops(kind), dtype="float32", max_model_len=1024)
    difference = largest_difference(model, goldens("default"), chunk=100)
    print(f"default {kind}: {difference:.2e}")
    assert difference < TOLERANCE


@pytest.mark.slow
def test_perplexity_of_the_native_quantised_path(default_model_path: Path) -> None:
    golden = goldens("default")
    model = load_model(open_checkpoint(default_model_path), make_ops("cpu"), max_model_len=1024)
    windows = golden["wikitext_tokens"].tolist()
    loss = sum(negative_log_likelihood(model, w, kv_dtype="float16") for w in windows)
    count = sum(len(w) - 1 for w in windows)
    expected, got = np.exp(golden["wikitext_nll"].sum() / count), np.exp(loss / count)
    print(f"perplexity: {got:.4f} against {expected:.4f}, {got / expected - 1:+.3%}")
    assert got == pytest.approx(expected, rel=0.01)


def test_wikitext_tokens_are_those_of_our_tokenizer(
    default_model_path: Path, shared_dir: Path
) -> None:
    from octavo.text.gguf_tokenizer import gguf_tokenizer

    golden = goldens("default")["wikitext_tokens"].reshape(-1)
    text = (shared_dir / "text" / "wikitext2_test.txt").read_text(encoding="utf-8")
    tokenizer = gguf_tokenizer(open_checkpoint(default_model_path).gguf_metadata or {})
    assert tokenizer.encode(text[:200_000])[: len(golden)] == golden.tolist()

"""Families and loader on the reference set: every part of a model counts, batches do not, bad input is named."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import ConfigError, UnsupportedModelError
from octavo.models.loader import load_model
from octavo.ops.base import Ops
from octavo.ops.formats import dequantize, from_float32
from octavo.ops.reference import ReferenceOps
from tests.models.drive import Run, logits_of, make_batch, new_kv
from tests.models.memory_checkpoint import MemoryCheckpoint, make_spec

FAMILIES = ("llama", "qwen2", "qwen3")
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 80, 45)]


class RecordingOps(ReferenceOps):
    """Notes the formats of the matrices that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.formats: list[str] = []

    def prepare_linear(self, parts):  # type: ignore[no-untyped-def]
        self.formats += [p.type for p in parts]
        return super().prepare_linear(parts)


def load(checkpoint: MemoryCheckpoint, **settings):  # type: ignore[no-untyped-def]
    settings.setdefault("max_model_len", 64)
    return load_model(checkpoint, settings.pop("ops", ReferenceOps()), **settings)


def make_ops(kind: str, threads: int = 2) -> Ops:
    if kind == "reference":
        return ReferenceOps(threads)
    cpu = pytest.importorskip("octavo.ops.cpu", reason="native kernels are not built")
    return cpu.CpuOps(threads)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kv_dtype", ["float32", "float16"])
@pytest.mark.parametrize("format", ["F32", "BF16", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_chunks_and_company_change_no_bit(
    kind: str, family: str, format: str, kv_dtype: str
) -> None:
    model = load(MemoryCheckpoint(make_spec(family), format), ops=make_ops(kind))
    whole = logits_of(model, TOKENS, kv_dtype=kv_dtype)
    assert whole.shape == (45, 80)
    assert whole.dtype == np.float32
    for chunk in (1, 7, 16):
        np.testing.assert_array_equal(
            logits_of(model, TOKENS, kv_dtype=kv_dtype, chunk=chunk), whole
        )
    kv = new_kv(model, 8, kv_dtype)
    tiles = [5, 2, 7]
    model = load(MemoryCheckpoint(make_spec(family), format), ops=make_ops(kind, threads=1))
    model.forward(make_batch(model.ops, kv, [Run(TOKENS[:20], 0, tiles)]))
    runs = [Run(TOKENS[1:13], 0, [3]), Run(TOKENS[20:45], 20, tiles), Run(TOKENS[:1], 0, [0])]
    together = model.forward(make_batch(model.ops, kv, runs, [36, 12, 37]))
    np.testing.assert_array_equal(together, whole[[44, 20, 0]])


@pytest.mark.parametrize(
    "spec",
    [
        *(make_spec(f) for f in FAMILIES),
        make_spec("llama", qkv_bias=True, o_bias=True, mlp_bias=True),
        make_spec("qwen3", qkv_bias=True, o_bias=True),
        make_spec("llama", tied_embeddings=True),
    ],
    ids=["llama", "qwen2", "qwen3", "llama-biases", "qwen3-biases", "tied"],
)
def test_every_tensor_changes_the_logits(spec) -> None:  # type: ignore[no-untyped-def]
    checkpoint = MemoryCheckpoint(spec)
    before = logits_of(load(checkpoint), TOKENS)
    for name, weight in checkpoint.tensors.items():
        values = dequantize(weight)
        # k_proj's bias as a constant would cancel in the softmax: make changes uneven
        change = np.linspace(0.5, 1.5, values.size, dtype=np.float32).reshape(values.shape)
        checkpoint.tensors[name] = from_float32(name, values * change)
        after = logits_of(load(checkpoint), TOKENS)
        checkpoint.tensors[name] = weight
        assert np.abs(after - before).max() > 1e-4, name


def test_no_logits_are_computed_where_none_are_asked() -> None:
    model = load(MemoryCheckpoint(make_spec("llama")))
    kv = new_kv(model, 1, "float16")
    assert model.forward(make_batch(model.ops, kv, [Run(TOKENS[:3], 0, [0])])).shape == (0, 80)
    assert model.kv_shape(5) == (5, 2, 2, 2, 16 * 16)


def test_float32_dequantises_first_and_gives_the_same_on_the_reference() -> None:
    checkpoint = MemoryCheckpoint(make_spec("llama"), "Q4_1")
    auto, wide = RecordingOps(), RecordingOps()
    a = logits_of(load(checkpoint, ops=auto), TOKENS)
    b = logits_of(load(checkpoint, ops=wide, dtype="float32"), TOKENS)
    assert set(auto.formats) == {"Q4_1"}
    assert set(wide.formats) == {"F32"}
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("quantization", "format", "near"), [("q8", "Q8_0", 0.05), ("q4", "Q4_1", 0.5)]
)
def test_quantization_of_float_weights(quantization: str, format: str, near: float) -> None:
    checkpoint = MemoryCheckpoint(make_spec("llama"), "F16")
    ops = RecordingOps()
    quantised = logits_of(load(checkpoint, ops=ops, quantization=quantization), TOKENS)
    assert ops.formats.count(format) >= 14
    assert set(ops.formats) <= {format, "Q8_0"}
    exact = logits_of(load(checkpoint), TOKENS)
    error = np.square(quantised - exact).mean() / np.square(exact).mean()
    assert 0 < error < near**2


def test_quantization_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="quantised already"):
        load(MemoryCheckpoint(make_spec("llama"), "Q8_0"), quantization="q4")
    with pytest.raises(ConfigError, match="float32"):
        load(MemoryCheckpoint(make_spec("llama")), quantization="q4", dtype="float32")


def test_rows_that_are_not_whole_groups_stay_float() -> None:
    checkpoint = MemoryCheckpoint(make_spec("llama", intermediate_size=90))
    ops = RecordingOps()
    load(checkpoint, ops=ops, quantization="q8")
    assert sorted(set(ops.formats)) == ["F32", "Q8_0"]


def test_lengths_beyond_the_model_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"at most 256 .*context length.* got 300"):
        load(MemoryCheckpoint(make_spec("llama")), max_model_len=300)


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"mamba.*llama, qwen2, qwen3"):
        load(MemoryCheckpoint(make_spec("mamba")))


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    load(
        MemoryCheckpoint(make_spec("llama")),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]

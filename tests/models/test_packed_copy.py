"""Packed weights on disk change no bit and do no harm, whatever becomes of the file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.config import ModelConfig
from octavo.models import packed_copy
from octavo.models.checkpoint import Checkpoint, open_checkpoint
from octavo.models.loader import load_model
from octavo.models.packed_key import packed_copy_of
from octavo.ops.reference import ReferenceOps
from tests.models.drive import logits_of
from tiny_models import make_hf

cpu = pytest.importorskip("octavo.ops.cpu", reason="the native kernels are not built")

TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 512, 40)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies go here, and are kept however fast packing was."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed_copy, "WORTH_SECONDS", -1.0)
    return tmp_path / "cache" / "packed"


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return make_hf(tmp_path / "model", "qwen2", dtype="bfloat16", tied=True)


class Loaded:
    """A model's logits, and how it came by its weights."""

    def __init__(self, path: Path, quantization: str | None, dtype: str, layout: str) -> None:
        ops = cpu.CpuOps(2)
        ops.packed_layout = layout or ops.packed_layout
        self.checkpoint: Checkpoint = open_checkpoint(path)
        settings: dict[str, Any] = {"dtype": dtype, "quantization": quantization}
        copy = packed_copy_of(self.checkpoint, ops, ModelConfig(**settings), threads=2)
        assert copy is not None
        model = load_model(self.checkpoint, ops, max_model_len=64, packed=copy, **settings)
        copy.wait()
        self.logits = logits_of(model, TOKENS)

    @property
    def matrices_read(self) -> set[str]:
        """Names of the matrices that were read from the checkpoint."""
        tensors = self.checkpoint.tensors
        return {n for n in self.checkpoint._checked if len(tensors[n].shape) == 2}


def load(
    path: Path, quantization: str | None = "q4", dtype: str = "auto", layout: str = ""
) -> Loaded:
    return Loaded(path, quantization, dtype, layout)


def plain(path: Path, quantization: str | None = "q4", dtype: str = "auto") -> np.ndarray:
    """Logits without any copy."""
    checkpoint = open_checkpoint(path)
    settings: dict[str, Any] = {"dtype": dtype, "quantization": quantization}
    return logits_of(load_model(checkpoint, cpu.CpuOps(2), max_model_len=64, **settings), TOKENS)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Call it for the warnings since the last call."""

    def since() -> list[str]:
        found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        caplog.clear()
        return found

    yield since
    assert since() == []


@pytest.mark.parametrize(
    ("quantization", "dtype"), [(None, "auto"), (None, "float32"), ("q8", "auto"), ("q4", "auto")]
)
def test_same_bits(model_dir: Path, folder: Path, quantization: str | None, dtype: str) -> None:
    expected = plain(model_dir, quantization, dtype)
    first = load(model_dir, quantization, dtype)
    assert (
        len(first.matrices_read) == 15
    )  # 7 in each of 2 layers, and the table that is the output matrix too
    (file,) = folder.iterdir()
    second = load(model_dir, quantization, dtype)
    # A table that is not converted stays in the checkpoint.
    assert len(second.matrices_read) == (quantization is None and dtype == "auto")
    for loaded in (first, second):
        np.testing.assert_array_equal(loaded.logits, expected)
    assert list(folder.iterdir()) == [file]


def test_what_packs_fast_is_not_kept(
    model_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("OCTAVO_CACHE", str(folder.parent))
    load(model_dir)
    assert not folder.exists()


def test_the_reference_set_keeps_none(model_dir: Path) -> None:
    checkpoint = open_checkpoint(model_dir)
    assert packed_copy_of(checkpoint, ReferenceOps(), ModelConfig(quantization="q4"), 1) is None


def test_a_damaged_part_is_packed_again(model_dir: Path, folder: Path, warnings: Any) -> None:
    first = load(model_dir)
    (file,) = folder.iterdir()
    sound = file.read_bytes()
    for at in (file.stat().st_size - 4096, 8192):  # in the last part and in an early one
        broken = bytearray(sound)
        broken[at] ^= 1
        file.write_bytes(broken)
        again = load(model_dir)
        assert 1 <= len(again.matrices_read) <= 3  # of one part
        np.testing.assert_array_equal(again.logits, first.logits)
        (warning,) = warnings()
        assert "checksum" in warning
        assert str(file) in warning
        assert file.read_bytes() == sound
        assert load(model_dir).matrices_read == set()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda b: b"",
    "first bytes": lambda b: b[:10],
    "header": lambda b: b[:100],
    "half": lambda b: b[: len(b) // 2],
    "last byte": lambda b: b[:-1],
    "too long": lambda b: b + b"x",
    "bit of the header": lambda b: b[:60] + bytes([b[60] ^ 4]) + b[61:],
    "length of the header": lambda b: b[:12] + b"\xff\xff" + b[14:],
    "foreign": lambda b: b"GGUF" + b[4:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_none_is_replaced(
    model_dir: Path, folder: Path, warnings: Any, damage: str
) -> None:
    first = load(model_dir)
    (file,) = folder.iterdir()
    sound = file.read_bytes()
    file.write_bytes(DAMAGES[damage](sound))
    again = load(model_dir)
    np.testing.assert_array_equal(again.logits, first.logits)
    (warning,) = warnings()
    assert str(file) in warning
    assert "not used" in warning
    assert file.read_bytes() == sound


def test_another_model_under_the_name(
    tmp_path: Path, model_dir: Path, folder: Path, warnings: Any
) -> None:
    other = make_hf(tmp_path / "other", "qwen2", dtype="bfloat16", tied=True, seed=1)
    load(other)
    (foreign,) = folder.iterdir()
    wrong = foreign.read_bytes()
    foreign.unlink()
    first = load(model_dir)
    (file,) = folder.iterdir()
    file.write_bytes(wrong)
    np.testing.assert_array_equal(load(model_dir).logits, first.logits)
    (warning,) = warnings()
    assert "another model" in warning


def test_a_changed_checkpoint_is_packed_again(model_dir: Path, folder: Path, warnings: Any) -> None:
    """By one weight, at a place where the fingerprint does not look."""
    first = load(model_dir)
    (old,) = folder.iterdir()
    before = open_checkpoint(model_dir)
    weights = model_dir / "model.safetensors"
    data = bytearray(weights.read_bytes())
    at = len(data) - 128 * 64 * 2 + 600 * 2  # the last tensor is an up_proj [128, 64] in bfloat16
    data[at : at + 2] = b"\x00\x41"  # 8.0
    weights.write_bytes(data)
    os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 1))
    assert open_checkpoint(model_dir).fingerprint == before.fingerprint
    again = load(model_dir)
    assert (again.logits != first.logits).any()
    np.testing.assert_array_equal(again.logits, plain(model_dir))
    (new,) = folder.iterdir()
    assert new != old


def test_another_layout_is_packed_again(model_dir: Path, folder: Path, warnings: Any) -> None:
    load(model_dir, layout="cpu-0")
    (old,) = folder.iterdir()
    assert len(load(model_dir).matrices_read) == 15
    (new,) = folder.iterdir()
    assert new != old


def test_a_start_removes_what_was_abandoned(model_dir: Path, folder: Path) -> None:
    load(model_dir)
    (file,) = folder.iterdir()
    (folder / "other.packed123.tmp").write_bytes(b"")
    os.utime(folder / "other.packed123.tmp", (0, 0))
    assert load(model_dir).matrices_read == set()
    assert list(folder.iterdir()) == [file]


def test_conversions_stand_side_by_side(model_dir: Path, folder: Path) -> None:
    for quantization in ("q4", "q8"):
        load(model_dir, quantization)
    assert len(list(folder.iterdir())) == 2
    assert load(model_dir, "q4").matrices_read == load(model_dir, "q8").matrices_read == set()

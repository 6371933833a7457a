"""Packed weights of another linear map, used in place."""

from __future__ import annotations

import gc
import hashlib
import mmap
from pathlib import Path

import numpy as np
import pytest

from tests.cpu.linear_cases import TYPES, random_rows, random_weight

native = pytest.importorskip("octavo._native", reason="the native kernels are not built")

from octavo.ops.cpu import CpuOps  # noqa: E402

# sha256 of what LAYOUT's kernels pack (see digest). If the test below fails because packing has changed, count
# kPackedLayout in csrc/linear.h up, so that copies on disk are not taken for the new layout; then enter both here.
LAYOUT = 1
DIGEST = "95b7f45f96711833cb0ffa6f5076a924e5a7ddedcd1cd668321693c4648807c9"


def digest() -> str:
    parts = [random_weight(type, 16 * i + 5, 512, seed=i) for i, type in enumerate(TYPES)]
    return hashlib.sha256(CpuOps(1).prepare_linear(parts).packed).hexdigest()


def test_layout_has_its_number() -> None:
    assert (native.PACKED_LAYOUT, digest()) == (LAYOUT, DIGEST)


def test_instruction_sets_pack_alike() -> None:
    parts = [random_weight(type, 37, 512, seed=i) for i, type in enumerate(TYPES)]
    sets = ("portable", "avx2", "avx512", "avx512bf16")
    sets = sets[: sets.index(native.best_isa()) + 1]
    packed = [bytes(CpuOps(2, isa).prepare_linear(parts).packed) for isa in sets]
    assert set(packed) == {packed[0]}


def test_a_mapped_file_serves_in_place(tmp_path: Path) -> None:
    ops = CpuOps(2)
    parts = [random_weight(type, 37, 512, seed=i) for i, type in enumerate(TYPES)]
    linear = ops.prepare_linear(parts)
    (tmp_path / "packed").write_bytes(ops.packed_bytes(linear))
    with (tmp_path / "packed").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8)
    other = ops.linear_from_packed([(p.type, p.shape[0]) for p in parts], 512, data)
    assert np.shares_memory(ops.packed_bytes(other), data)
    assert (other.k, other.num_outputs) == (linear.k, linear.num_outputs)
    del data, mapped
    gc.collect()  # the mapping lives as long as the linear map
    x = random_rows(21, 512, seed=5)
    np.testing.assert_array_equal(ops.linear(x, other), ops.linear(x, linear))


def test_memory_that_does_not_fit_is_refused() -> None:
    ops = CpuOps(1)
    linear = ops.prepare_linear([random_weight("Q4_1", 40, 64, seed=1)])
    data = ops.packed_bytes(linear)
    assert not data.flags.writeable
    for matrices, width, wrong in (
        ([("Q4_1", 40)], 64, data[:-64]),
        ([("Q4_1", 56)], 64, data),
        ([("Q8_0", 40)], 64, data),
        ([("Q4_1", 40)], 96, data),
        ([("Q4_1", 0)], 64, data),
        ([("Q4_1", 40)], 64, np.concatenate([data[:1], data])[1:]),
    ):
        with pytest.raises(ValueError, match="packed weights: expected"):
            ops.linear_from_packed(matrices, width, wrong)

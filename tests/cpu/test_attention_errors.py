"""Plans and arrays that do not fit are refused with what was expected and what came."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from octavo.ops.base import TILE, AttentionInputs, AttentionShape
from octavo.ops.cpu import CpuOps
from tests.cpu.paged import make_batch, make_inputs

OPS = CpuOps(2)
SHAPE = AttentionShape(4, 2, 16, 0.25)
GOOD = make_inputs([(1, 20, [4, 2]), (3, 3, [0])])


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_starts": ints(0, 1)}, "row_starts of 3 entries .* got 2"),
        ({"tile_starts": ints(0, 2, 3, 3)}, "tile_starts of 3 entries .* got 4"),
        ({"row_starts": ints(1, 2, 5)}, r"row_starts\[0\] = 0, got 1"),
        ({"tile_starts": ints(1, 2, 3)}, r"tile_starts\[0\] = 0, got 1"),
        ({"row_starts": ints(0, 4, 1)}, "rising order, got -3 rows of sequence 1"),
        ({"context_lens": ints(20, 2)}, "of sequence 1 to cover its 3 rows, got 2"),
        ({"context_lens": ints(-5, 3)}, "of sequence 0 to cover its 1 rows, got -5"),
        ({"context_lens": ints(33, 3)}, r"expected 3 tiles of sequence 0 \(context 33\), got 2"),
        ({"tiles": ints(4, 2)}, "expected 3 tiles .* got 2"),
        ({"tiles": ints(4, -1, 0)}, "tile ids of 0 or more, got -1"),
        (
            {"tiles": np.array([4, 2, 0])},
            r"tiles: expected C-contiguous int32 \[any\], got int64 \[3\]",
        ),
        ({"context_lens": np.ones((2, 1), np.int32)}, r"got int32 \[2, 1\]"),
        ({"row_starts": ints(0, 0, 1, 1, 4, 4)[::2]}, r"got int32 \[3\], not C-contiguous"),
    ],
)
def test_plans_that_do_not_fit(change: dict[str, np.ndarray], message: str):
    inputs: AttentionInputs = dataclasses.replace(GOOD, **change)
    with pytest.raises(ValueError, match=message):
        OPS.plan_attention(inputs)


def make_kv(tiles: int = 5, heads: int = 2, dim: int = 16, dtype: type = np.float16) -> np.ndarray:
    return np.zeros((tiles, 3, 2, heads, dim * TILE), dtype)


def queries(rows: int = 4, size: int = 64) -> np.ndarray:
    return np.zeros((rows, size), np.float32)


@pytest.mark.parametrize(
    ("q", "kv", "layer", "shape", "message"),
    [
        (queries(rows=5), make_kv(), 0, SHAPE, r"q: .* float32 \[4, 64\], got float32 \[5, 64\]"),
        (queries(size=80), make_kv(), 0, SHAPE, r"q: .* got float32 \[4, 80\]"),
        (queries().astype(np.float64), make_kv(), 0, SHAPE, r"q: .* got float64 \[4, 64\]"),
        (queries(8)[::2], make_kv(), 0, SHAPE, "q: .* not C-contiguous"),
        (queries(), make_kv(heads=3), 0, SHAPE, r"kv: .* \[any, any, 2, 2, 256\], got float16 \[5, 3, 2, 3, 256\]"),
        (queries(), make_kv(dim=8), 0, SHAPE, r"kv: .* got float16 \[5, 3, 2, 2, 128\]"),
        (queries(), make_kv(dtype=np.int16), 0, SHAPE, "kv: .* got int16"),
        (queries(), make_kv(dtype=np.float64), 0, SHAPE, "kv: .* got float64"),
        (queries(), make_kv(10)[::2], 0, SHAPE, "kv: .* not C-contiguous"),
        (queries(), make_kv(), 3, SHAPE, "expected a layer below 3, got 3"),
        (queries(), make_kv(), -1, SHAPE, "expected a layer below 3, got -1"),
        (queries(), make_kv(4), 0, SHAPE, r"tile ids below 4 \(tiles in KV memory\), got 4"),
        (queries(size=48), make_kv(), 0, AttentionShape(3, 2, 16, 1.0), "a multiple of the KV heads, got 3 and 2"),
        (queries(size=48), make_kv(dim=12), 0, AttentionShape(4, 2, 12, 1.0), "multiple of 8, got 12"),
        (queries(size=0), make_kv(dim=0), 0, AttentionShape(4, 2, 0, 1.0), "multiple of 8, got 0"),
        (queries(size=0), make_kv(heads=0), 0, AttentionShape(0, 0, 16, 1.0), "got 0 and 0"),
    ],
)  # fmt: skip
def test_calls_that_do_not_fit(q, kv, layer, shape, message):
    plan = OPS.plan_attention(GOOD)
    with pytest.raises(ValueError, match=message):
        OPS.paged_attention(q, layer, make_batch(kv, plan), shape)

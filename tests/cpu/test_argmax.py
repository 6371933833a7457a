"""The largest of each row, on the native kernels and on the reference, against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.ops.cpu import CpuOps
from octavo.ops.reference import ReferenceOps
from tests.cpu.paged import AVAILABLE

SETS = [ReferenceOps(), *(CpuOps(threads, isa) for isa in AVAILABLE for threads in (1, 2, 3))]
each_set = pytest.mark.parametrize("ops", SETS, ids=lambda ops: ops.name)


def plain(row: list[float]) -> int:
    if any(math.isnan(v) for v in row) or not row or math.isinf(max(row)):
        return -1
    return row.index(max(row))


@each_set
@pytest.mark.parametrize("num_rows", [0, 1, 2, 5, 64])
@pytest.mark.parametrize("size", [1, 3, 15, 17, 63, 64, 65, 1023, 1024, 1025, 2100, 4999])
def test_the_lowest_of_equals(ops, num_rows, size):
    x = np.random.default_rng(size).integers(-3, 4, (num_rows, size)).astype(np.float32)
    got = ops.argmax(x)
    assert got == [plain(row) for row in x.tolist()]
    assert all(type(i) is int for i in got)


@each_set
@pytest.mark.parametrize("size", [1, 16, 33, 1100, 5000])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -0.0])
def test_odd_numbers_wherever_they_stand(ops, size, odd):
    rng = np.random.default_rng(size)
    for place in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
        x = rng.standard_normal((3, size)).astype(np.float32)
        x[1, place] = odd
        assert ops.argmax(x) == [plain(row) for row in x.tolist()]


@each_set
def test_rows_with_nothing_to_choose(ops):
    x = np.full((4, 70), -np.inf, np.float32)
    x[1], x[2, 69], x[3, 5] = np.nan, np.inf, -7.0
    assert ops.argmax(x) == [-1, -1, -1, 5]
    assert ops.argmax(np.empty((2, 0), np.float32)) == [-1, -1]


@each_set
def test_zeros_of_either_sign_are_equal(ops):
    x = np.full((2, 40), -0.0, np.float32)
    x[0, 9], x[1, 0] = 0.0, 0.0
    assert ops.argmax(x) == [0, 0]


@settings(max_examples=50)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=80),
    st.integers(0, 2),
    st.sampled_from(range(len(SETS))),
)
def test_any_row(row, before, which):
    x = np.zeros((before + 1, len(row)), np.float32)
    x[before] = row
    assert SETS[which].argmax(x)[before] == plain(row)


@pytest.mark.parametrize(
    "x", [np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((3, 4), np.float32)[:, ::2]]
)
def test_other_arrays_are_refused(x):
    with pytest.raises(ValueError, match="x: expected C-contiguous float32"):
        CpuOps(1).argmax(x)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.request import SamplingParams
from octavo.runner.filters import draw, kept, largest

floats = st.floats(-8, 8, width=32)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 45))
def test_largest_prefers_big_then_early(values, count):
    x = np.array(values, dtype=np.float32)
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert largest(x, count).tolist() == sorted(ranked)


def test_largest_of_all_equal_and_infinite():
    x = np.full(100, -np.inf, dtype=np.float32)
    assert largest(x, 3).tolist() == [0, 1, 2]
    x[50] = 1
    assert largest(x, 2).tolist() == [0, 50]


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=300).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_draw_is_the_inverse_of_the_running_sum(values, u):
    # Sums of these weights are exact in floats, so the plain rule must agree to the letter.
    got = draw(np.array(values, dtype=np.float32), u)
    target = u * sum(values)
    assert got == next(i for i in range(len(values)) if sum(values[: i + 1]) > target)
    assert values[got] > 0


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 49152])
def test_draw_never_leaves_the_support(size):
    rng = np.random.default_rng(size)
    weights = rng.random(size).astype(np.float32)
    weights[rng.random(size) < 0.5] = 0
    weights[size // 2] = 1e-30
    for u in (0.0, 2.0**-53, 0.5, 1 - 2.0**-53):
        assert weights[draw(weights, u)] > 0


def test_nothing_in_force_keeps_all():
    x = np.zeros(5, dtype=np.float32)
    assert kept(x, np.exp(x), SamplingParams(top_k=-1)) is None
    assert kept(x, np.exp(x), SamplingParams(top_k=5)) is None


def test_tiny_top_p_keeps_the_best_and_full_min_p_its_equals():
    x = np.array([1, 3, 3, 0], dtype=np.float32)
    weights = np.exp(x - x.max())
    assert kept(x, weights, SamplingParams(top_p=1e-9)).tolist() == [1]
    assert kept(x, weights, SamplingParams(min_p=1.0)).tolist() == [1, 2]
    assert kept(x, weights, SamplingParams(min_p=1.0, top_k=1)).tolist() == [1]


@given(st.floats(0.01, 0.999), st.integers(0, 2**32))
def test_nucleus_of_a_flat_and_a_peaked_vocabulary(top_p, seed):
    # Sizes at which the shortcut over likely tokens is taken, and at which it has to give up.
    rng = np.random.default_rng(seed)
    for spread in (0.01, 3.0, 12.0):
        x = (rng.standard_normal(3000) * spread).astype(np.float32)
        weights = np.exp(x - x.max())
        ids = kept(x, weights, SamplingParams(top_p=top_p))
        order = np.argsort(-weights, kind="stable")
        running = np.cumsum(weights[order], dtype=np.float64)
        n = len(ids)
        assert ids.tolist() == sorted(order[:n].tolist())
        assert running[n - 1] >= top_p * running[-1] * (1 - 1e-12)
        assert n == 1 or running[n - 2] < top_p * running[-1] * (1 + 1e-12)

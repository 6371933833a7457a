"""Linear maps: a row's outputs are the same bits whatever is computed beside it, on however many threads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.linear_cases import TYPES, random_rows, random_weight

native = pytest.importorskip("octavo._native", reason="the native kernels are not built")

from octavo.ops.cpu import CpuOps  # noqa: E402

ISAS = ("portable", "avx2", "avx512", "avx512bf16")
K = 256


def make_ops(threads: int, isa: str) -> CpuOps:
    if ISAS.index(isa) > ISAS.index(native.best_isa()):
        pytest.skip(f"this machine has no {isa}")
    return CpuOps(threads, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", TYPES)
def test_rows_do_not_depend_on_the_batch(isa: str, type: str) -> None:
    ops = make_ops(2, isa)
    linear = ops.prepare_linear([random_weight(type, 83, K, seed=4)])
    x = random_rows(130, K, seed=5)
    alone = np.concatenate([ops.linear(x[i : i + 1], linear) for i in range(130)])
    for num_rows in range(1, 131):
        np.testing.assert_array_equal(ops.linear(x[:num_rows], linear), alone[:num_rows])
        first = 130 - num_rows  # the same rows at other places of a tile
        np.testing.assert_array_equal(ops.linear(x[first:], linear), alone[first:])


@pytest.mark.parametrize("isa", ISAS)
def test_blocks_of_rows_agree(isa: str) -> None:
    """More rows than the kernels lay out at a time."""
    ops = make_ops(2, isa)
    parts = [random_weight(type, 40, 4096, seed=1) for type in ("Q4_K", "F16")]
    linear = ops.prepare_linear(parts)
    x = random_rows(150, 4096, seed=2)
    whole = ops.linear(x, linear)
    for i in (0, 15, 16, 23, 24, 95, 96, 149):
        np.testing.assert_array_equal(whole[i], ops.linear(x[i : i + 1], linear)[0])


@pytest.mark.parametrize("isa", ISAS)
def test_threads_change_nothing(isa: str) -> None:
    parts = [random_weight(type, 37, K, seed=i) for i, type in enumerate(TYPES)]
    x = random_rows(70, K, seed=5)
    results = []
    for threads in (1, 2, 3, 8):
        ops = make_ops(threads, isa)
        linear = ops.prepare_linear(parts)
        results.append([ops.linear(x[:n], linear) for n in (1, 5, 70)])
    for other in results[1:]:
        for want, got in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("isa", ISAS)
def test_stacking_changes_nothing(isa: str) -> None:
    ops = make_ops(2, isa)
    parts = [
        random_weight(type, n, K, seed=n)
        for n, type in zip((33, 5, 48, 17, 64, 1, 16, 80, 7, 30, 12), TYPES, strict=True)
    ]
    x = random_rows(21, K, seed=5)
    together = ops.linear(x, ops.prepare_linear(parts))
    apart = np.concatenate([ops.linear(x, ops.prepare_linear([p])) for p in parts], axis=1)
    np.testing.assert_array_equal(together, apart)


def test_float_sums_run_in_order() -> None:
    """One sum after the other from k = 0: in float32 the order shows."""
    ops = make_ops(1, "portable")
    weight = random_weight("F32", 40, K, seed=1)
    x = random_rows(3, K, seed=2)
    total = np.zeros((3, 40), np.float32)
    w = weight.data.view(np.float32)
    for k in range(K):
        total += x[:, k : k + 1] * w[:, k]
    np.testing.assert_array_equal(ops.linear(x, ops.prepare_linear([weight])), total)


def test_calls_from_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    ops = make_ops(2, "portable")
    linear = ops.prepare_linear([random_weight("Q4_1", 64, K, seed=1)])
    xs = [random_rows(n, K, seed=n) for n in range(1, 30)]
    want = [ops.linear(x, linear) for x in xs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for a, b in zip(want, pool.map(lambda x: ops.linear(x, linear), xs), strict=True):
                np.testing.assert_array_equal(a, b)

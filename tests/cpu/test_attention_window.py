"""Attention within a window: right, the same bits whatever runs beside it, and what is behind the window is not read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from octavo.ops.base import TILE, AttentionShape
from octavo.ops.cpu import CpuOps
from octavo.ops.reference import ReferenceOps
from tests.cpu.paged import (
    AVAILABLE,
    LAYER,
    Memory,
    Seq,
    alone,
    chunked,
    make_batch,
    make_inputs,
    oracle,
    random_mix,
    run,
    tolerance,
)

PARTITION = 256  # csrc/attention_kernels.h: contexts are cut here
LENGTHS = (1, 40, PARTITION + 1, 3 * PARTITION + 20)
WINDOWS = (1, 7, 16, 100, PARTITION - 1, PARTITION, PARTITION + 1, 2 * PARTITION + 9)
GQA = AttentionShape(9, 3, 64, 0.125)
SHAPES = [GQA, AttentionShape(4, 4, 16, 0.25), AttentionShape(26, 1, 24, 0.2)]

isas = pytest.mark.parametrize("isa", AVAILABLE)
dtypes = pytest.mark.parametrize("dtype", [np.float16, np.float32])
windows = pytest.mark.parametrize("window", WINDOWS)
shapes = pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"{s.num_heads}x{s.num_kv_heads}x{s.head_dim}"
)


def within(shape: AttentionShape, window: int | None) -> AttentionShape:
    return dataclasses.replace(shape, window=window)


def make_seqs(shape: AttentionShape, lengths=LENGTHS) -> list[Seq]:
    return [Seq(n, shape, seed) for seed, n in enumerate(lengths)]


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@isas
@dtypes
@windows
@shapes
def test_agrees_with_float64(isa, dtype, window, shape):
    shape = within(shape, window)
    seqs = make_seqs(shape)
    got = run(CpuOps(2, isa), Memory(seqs, shape, dtype), chunked(LENGTHS, 100))
    for rows, seq in zip(got, seqs, strict=True):
        expected = oracle(seq, shape, dtype, isa)
        np.testing.assert_allclose(rows, expected, rtol=0, atol=tolerance(isa, dtype))


@windows
def test_the_reference_set_agrees(window):
    shape = within(GQA, window)
    seqs = make_seqs(shape)
    got = run(ReferenceOps(), Memory(seqs, shape, np.float16), chunked(LENGTHS, 90))
    for rows, seq in zip(got, seqs, strict=True):
        np.testing.assert_allclose(rows, oracle(seq, shape, np.float16), rtol=0, atol=1e-5)


@isas
@windows
@shapes
def test_schedule_batch_and_threads_change_no_bit(isa, window, shape):
    shape = within(shape, window)
    seqs = make_seqs(shape)
    expected = run(CpuOps(1, isa), Memory(seqs, shape, np.float16), alone(LENGTHS))
    schedules = [chunked(LENGTHS, 1), chunked(LENGTHS, 7), random_mix(LENGTHS, seed=3)]
    for seed, steps in enumerate(schedules):
        memory = Memory(seqs, shape, np.float16, seed + 1)
        assert_same(run(CpuOps(1 + seed, isa), memory, steps), expected)


@windows
def test_the_reference_set_keeps_the_contract(window):
    shape = within(SHAPES[1], window)
    seqs = make_seqs(shape)
    expected = run(ReferenceOps(), Memory(seqs, shape, np.float16), alone(LENGTHS))
    steps = random_mix(LENGTHS, seed=5)
    assert_same(run(ReferenceOps(), Memory(seqs, shape, np.float16, 1), steps), expected)


@pytest.mark.skipif("avx512" not in AVAILABLE, reason="this machine has no AVX-512")
@windows
def test_avx2_and_avx512_give_the_same_bits(window):
    shape = within(GQA, window)
    seqs = make_seqs(shape)
    both = [
        run(CpuOps(2, isa), Memory(seqs, shape, np.float16), chunked(LENGTHS, 50))
        for isa in ("avx2", "avx512")
    ]
    assert_same(*both)


@isas
def test_a_window_as_long_as_the_context_is_none(isa):
    seqs = make_seqs(GQA)
    expected = run(CpuOps(2, isa), Memory(seqs, GQA, np.float16), chunked(LENGTHS, 60))
    for window in (LENGTHS[-1], LENGTHS[-1] + 1, 1 << 40):
        memory = Memory(seqs, within(GQA, window), np.float16)
        assert_same(run(CpuOps(2, isa), memory, chunked(LENGTHS, 60)), expected)


@isas
@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_not_a_number_is_gone_when_the_window_has_passed_it(isa, chunk):
    """Also for queries that are computed together with some that still see it."""
    shape = within(GQA, 10)
    seqs = make_seqs(shape, (300,))
    for position in (3, 250):
        seqs[0].v[position] = np.nan
        seqs[0].k[position] = np.nan
    (rows,) = run(CpuOps(2, isa), Memory(seqs, shape, np.float16), chunked((300,), chunk))
    sick = np.isnan(rows).any(axis=1)
    assert np.flatnonzero(sick).tolist() == [*range(3, 13), *range(250, 260)]


# ---- with sequences that have tiles in common


def twins(length: int, shared: int, shape: AttentionShape) -> Memory:
    """Two sequences, all written, with `shared` tokens (whole tiles) in common."""
    memory = Memory([Seq(length, shape, seed) for seed in range(2)], shape, np.float16)
    first, second = memory.seqs
    second.k[:shared], second.v[:shared] = first.k[:shared], first.v[:shared]
    memory.tables[1][: shared // TILE] = memory.tables[0][: shared // TILE]
    for i in range(2):
        memory.write(i, length)
        memory.give_away(i, length - 1)
    return memory


@pytest.mark.parametrize("window", [20, PARTITION, 2 * PARTITION + 50, 4 * PARTITION])
def test_common_tiles_change_no_bit(window):
    length = 3 * PARTITION + 9
    shape = within(GQA, window)
    memory = twins(length, 3 * PARTITION, shape)
    q = np.concatenate([s.q[-1:] for s in memory.seqs])
    ops = CpuOps(2)

    def attend(ids: list[int]) -> tuple[np.ndarray, int]:
        plan = ops.plan_attention(make_inputs([(1, length, memory.tables[i]) for i in ids]))
        out = ops.paged_attention(q[ids], LAYER, make_batch(memory.kv, plan), shape)
        return out, plan.num_shared_items

    together, shared = attend([0, 1])
    for i in range(2):
        np.testing.assert_array_equal(attend([i])[0][0], together[i])
    assert shared == (3 * GQA.num_kv_heads if window >= length else 0)


# ---- layers of several kinds, and what is refused


def test_layers_of_a_step_may_have_different_windows():
    shape = GQA
    seqs = make_seqs(shape, (300,))
    memory = Memory(seqs, shape, np.float32)
    memory.write(0, 300)
    ops = CpuOps(2)
    plan = ops.plan_attention(make_inputs([(300, 300, memory.tables[0])]))
    for window in (None, 30, None, 300, 8):
        kind = within(shape, window)
        out = ops.paged_attention(seqs[0].q, LAYER, make_batch(memory.kv, plan), kind)
        np.testing.assert_allclose(out, oracle(seqs[0], kind, np.float32), rtol=0, atol=1e-5)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_of_nothing_is_refused(window):
    ops = CpuOps(1)
    kv = np.zeros((1, 2, 2, 3, 64 * TILE), np.float16)
    batch = make_batch(kv, ops.plan_attention(make_inputs([(1, 5, [0])])))
    with pytest.raises(ValueError, match=f"a window of 1 token or more, or none, got {window}"):
        ops.paged_attention(np.zeros((1, 576), np.float32), 0, batch, within(GQA, window))

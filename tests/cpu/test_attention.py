"""Paged attention on the native kernels: right, and the same bits whatever runs beside it."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.base import TILE, AttentionShape
from octavo.ops.cpu import CpuOps
from octavo.ops.reference import ReferenceOps
from tests.cpu.paged import (
    AVAILABLE,
    LAYER,
    LAYERS,
    Memory,
    Seq,
    alone,
    bfloat16,
    chunked,
    make_batch,
    make_inputs,
    oracle,
    random_mix,
    rounds,
    run,
    tolerance,
)

PARTITION = 256  # csrc/attention_kernels.h: contexts are cut here
LENGTHS = (1, 16, 37, PARTITION - 1, PARTITION, PARTITION + 1, 2 * PARTITION + 20)


def shape_of(num_heads: int, num_kv_heads: int, head_dim: int) -> AttentionShape:
    return AttentionShape(num_heads, num_kv_heads, head_dim, head_dim**-0.5)


SHAPES = [
    shape_of(4, 4, 16),
    shape_of(9, 3, 64),
    shape_of(8, 2, 80),
    shape_of(8, 1, 128),
]
shapes = pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"{s.num_heads}x{s.num_kv_heads}x{s.head_dim}"
)
isas = pytest.mark.parametrize("isa", AVAILABLE)
dtypes = pytest.mark.parametrize("dtype", [np.float16, np.float32])


def make_seqs(shape: AttentionShape, lengths=LENGTHS) -> list[Seq]:
    return [Seq(n, shape, seed) for seed, n in enumerate(lengths)]


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


# ---- right


def odd_shapes() -> list[AttentionShape]:
    wide = [(2, 1, 8), (5, 1, 24), (3, 3, 32), (10, 2, 40), (7, 1, 96), (32, 1, 64), (4, 2, 256)]
    return [*SHAPES, *(shape_of(*s) for s in wide)]


@isas
@dtypes
@pytest.mark.parametrize("shape", odd_shapes(), ids=str)
def test_agrees_with_float64(isa, dtype, shape):
    seqs = make_seqs(shape)
    got = run(CpuOps(2, isa), Memory(seqs, shape, dtype), alone(LENGTHS))
    for rows, seq in zip(got, seqs, strict=True):
        expected = oracle(seq, shape, dtype, isa)
        np.testing.assert_allclose(rows, expected, rtol=0, atol=tolerance(isa, dtype))


@isas
def test_agrees_with_the_reference_set(isa):
    shape = SHAPES[1]
    seqs = make_seqs(shape)
    if rounds(isa, np.float16):  # what it would round is rounded already
        for s in seqs:
            s.q, s.k, s.v = bfloat16(s.q), bfloat16(s.k), bfloat16(s.v)
    ours = run(CpuOps(1, isa), Memory(seqs, shape, np.float16), chunked(LENGTHS, 100))
    reference = run(ReferenceOps(), Memory(seqs, shape, np.float16), chunked(LENGTHS, 100))
    for a, b in zip(ours, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance(isa, np.float16))


@isas
def test_large_scores(isa):
    """Weights of 0 and 1, and differences far beyond what exp can hold."""
    shape = shape_of(2, 2, 16)
    seqs = make_seqs(shape, (300,))
    seqs[0].q *= 1000
    got = run(CpuOps(1, isa), Memory(seqs, shape, np.float32), alone((300,)))
    expected = oracle(seqs[0], shape, np.float32)
    # Scores are about 1e4 and float32: their error enters the exponent.
    np.testing.assert_allclose(got[0], expected, rtol=0, atol=2e-2)
    assert np.isfinite(got[0]).all()


# ---- the same bits


@isas
@dtypes
@shapes
def test_schedule_batch_threads_and_tiles_change_no_bit(isa, dtype, shape):
    seqs = make_seqs(shape)
    expected = run(CpuOps(1, isa), Memory(seqs, shape, dtype), alone(LENGTHS))
    schedules = {
        "one by one": chunked(LENGTHS, 1),
        "chunks of 7": chunked(LENGTHS, 7),
        "chunks of 100": chunked(LENGTHS, 100),
        "whole": chunked(LENGTHS, 1000),
        "mixed": random_mix(LENGTHS, seed=3),
    }
    for seed, (name, steps) in enumerate(schedules.items()):
        for threads in (1, 2, 3) if name in ("whole", "mixed") else (2,):
            memory = Memory(seqs, shape, dtype, seed + 10 * threads)
            assert_same(run(CpuOps(threads, isa), memory, steps), expected)


@dtypes
@shapes
@pytest.mark.skipif("avx512" not in AVAILABLE, reason="this machine has no AVX-512")
def test_avx2_and_avx512_give_the_same_bits(dtype, shape):
    seqs = make_seqs(shape)
    memories = [Memory(seqs, shape, dtype) for _ in range(2)]
    narrow = run(CpuOps(2, "avx2"), memories[0], chunked(LENGTHS, 50))
    assert_same(run(CpuOps(2, "avx512"), memories[1], chunked(LENGTHS, 50)), narrow)


@isas
@pytest.mark.parametrize("num_seqs", [1, 4])
def test_split_context_changes_no_bit(isa, num_seqs):
    """Decode rows with a long context are shared out over threads, however many there are."""
    shape = shape_of(32, 1, 16)
    lengths = [9 * PARTITION + 5 - i for i in range(num_seqs)]
    memory = Memory(make_seqs(shape, lengths), shape, np.float16)
    for i, n in enumerate(lengths):
        memory.write(i, n - 1)
    step = [(i, 1) for i in range(num_seqs)]
    expected = memory.step(CpuOps(1, isa), step)
    for threads in (2, 3, 16):
        memory.written = [n - 1 for n in lengths]
        assert_same(memory.step(CpuOps(threads, isa), step), expected)


@isas
@dtypes
def test_what_lies_beyond_a_position_is_never_read(isa, dtype):
    """Slots after the context hold numbers, NaN or infinities: no bit changes (run() leaves NaN there too)."""
    shape = SHAPES[1]
    n = PARTITION + 21
    outs = []
    for garbage in (0.0, np.nan, np.inf, -np.inf, 6e4):
        memory = Memory(make_seqs(shape, (n,)), shape, dtype)
        memory.kv[:] = garbage
        outs.append(run(CpuOps(2, isa), memory, chunked((n,), 9))[0])
    for out in outs[1:]:
        np.testing.assert_array_equal(out, outs[0])


@isas
def test_shared_tiles_give_the_same_rows(isa):
    """Two sequences whose tables name the same tiles."""
    shape = SHAPES[1]
    memory = Memory(make_seqs(shape, (40,)), shape, np.float16)
    memory.write(0, 40)
    tiles = memory.tables[0]
    ops = CpuOps(2, isa)
    plan = ops.plan_attention(make_inputs([(3, 40, tiles), (0, 20, tiles[:2]), (1, 40, tiles)]))
    q = np.concatenate([memory.seqs[0].q[37:], memory.seqs[0].q[39:]])
    out = ops.paged_attention(q, LAYER, make_batch(memory.kv, plan), shape)
    np.testing.assert_array_equal(out[2], out[3])


@isas
def test_numbers_that_are_not_stay_in_their_sequence(isa):
    shape = SHAPES[1]
    seqs = make_seqs(shape, (50, 60))
    seqs[0].v[20, 1, 7] = np.nan  # one value: its head's component from position 20 on
    seqs[0].k[30] = np.nan
    sick, well = run(CpuOps(2, isa), Memory(seqs, shape, np.float16), chunked((50, 60), 13))
    assert np.isfinite(well).all()
    assert np.isfinite(sick[:20]).all()
    group = shape.num_heads // shape.num_kv_heads
    component = sick[20:].reshape(30, shape.num_kv_heads, group, -1)[:, 1, :, 7]
    assert np.isnan(component).all()
    assert np.isnan(sick[30:]).all()


def test_no_rows():
    ops = CpuOps(2)
    shape = SHAPES[0]
    kv = np.zeros((1, LAYERS, 2, 4, 16 * TILE), np.float16)
    plan = ops.plan_attention(make_inputs([(0, 5, [0])]))
    assert ops.paged_attention(
        np.empty((0, 64), np.float32), 0, make_batch(kv, plan), shape
    ).shape == (0, 64)

"""Sequences with common tiles are computed together, and no bit tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from octavo.ops.base import TILE, AttentionShape
from octavo.ops.cpu import CpuOps
from tests.cpu.paged import AVAILABLE, LAYER, Memory, Seq, Step, make_batch, make_inputs

PARTITION = 256  # csrc/attention_kernels.h: what is shared is shared in these
GQA = AttentionShape(9, 3, 64, 0.125)
SHAPES = [
    GQA,
    AttentionShape(4, 4, 16, 0.25),
    AttentionShape(8, 2, 24, 0.2),
    AttentionShape(26, 1, 8, 0.3),
]

isas = pytest.mark.parametrize("isa", AVAILABLE)
dtypes = pytest.mark.parametrize("dtype", [np.float16, np.float32])
shapes = pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"{s.num_heads}x{s.num_kv_heads}x{s.head_dim}"
)


@dataclasses.dataclass(frozen=True)
class Line:
    """A sequence of `length` tokens, the first `shared` partitions of which are those of sequence `of`.

    Its last `rows` tokens are queries.
    """

    length: int
    of: int = 0
    shared: int = 0
    rows: int = 1


def family(lines: Sequence[Line], shape: AttentionShape, dtype: type, seed: int = 0) -> Memory:
    """Memory that holds all of them, their common tiles once."""
    memory = Memory(
        [Seq(x.length, shape, seed + i) for i, x in enumerate(lines)], shape, dtype, seed
    )
    for i, line in enumerate(lines):
        n = line.shared * PARTITION
        assert n <= line.length
        if n:
            memory.tables[i][: n // TILE] = memory.tables[line.of][: n // TILE]
            memory.seqs[i].k[:n] = memory.seqs[line.of].k[:n]
            memory.seqs[i].v[:n] = memory.seqs[line.of].v[:n]
        memory.write(i, line.length)
    return memory


def step_of(memory: Memory, lines: Sequence[Line], order: Sequence[int]) -> Step:
    """The step that computes their queries; the tokens before them are there."""
    memory.written = [line.length - line.rows for line in lines]
    return [(i, lines[i].rows) for i in order]


def together(
    memory: Memory, lines: Sequence[Line], ops: CpuOps, order: Sequence[int]
) -> list[np.ndarray]:
    """The rows of each sequence, by number, of one step with all of them in this order."""
    rows = memory.step(ops, step_of(memory, lines, order))
    return [r for _, r in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])]


def each_alone(memory: Memory, lines: Sequence[Line], ops: CpuOps) -> list[np.ndarray]:
    """The same, of a step for each."""
    return [memory.step(ops, step_of(memory, lines, [i]))[0] for i in range(len(lines))]


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"sequence {i}")


def num_shared_items(memory: Memory, lines: Sequence[Line], ops: CpuOps) -> int:
    parts = [
        (line.rows, line.length, table) for line, table in zip(lines, memory.tables, strict=True)
    ]
    plan = ops.plan_attention(make_inputs(parts))
    assert plan.num_shared_items == 0  # nothing is known before the heads are
    queries = np.concatenate([s.q[s.n - x.rows :] for s, x in zip(memory.seqs, lines, strict=True)])
    ops.paged_attention(queries, LAYER, make_batch(memory.kv, plan), memory.shape)
    return int(plan.num_shared_items)


# ---- the same bits

DEPTHS = (
    Line(4 * PARTITION + 100),
    Line(4 * PARTITION + 7, of=0, shared=4),
    Line(4 * PARTITION, of=1, shared=4),  # nothing of its own
    Line(3 * PARTITION + 1, of=0, shared=3),
    Line(3 * PARTITION + 300, of=3, shared=3),
    Line(2 * PARTITION + 40, of=0, shared=2),
    Line(PARTITION + 90, of=0, shared=1),
    Line(5 * PARTITION + 90),  # alone from the start
    Line(2 * PARTITION + 9),
    Line(2 * PARTITION + 80, of=8, shared=2),  # another family
    Line(40),
)
CHUNKS = (
    Line(3 * PARTITION + 30, rows=3),
    Line(3 * PARTITION + 30, of=0, shared=3, rows=1),
    Line(
        3 * PARTITION + 2, of=0, shared=3, rows=4
    ),  # the first queries do not see all of partition 2
    Line(3 * PARTITION + 3, of=0, shared=3, rows=3),  # just see it
    Line(3 * PARTITION + 70, of=0, shared=3, rows=70),  # long: goes its own way
    Line(3 * PARTITION + 50, of=0, shared=2, rows=2),
    Line(2 * PARTITION, of=0, shared=2, rows=1),
    Line(2 * PARTITION, of=0, shared=2, rows=0),
    Line(PARTITION - 1, rows=5),
)


@isas
@dtypes
@shapes
@pytest.mark.parametrize("lines", [DEPTHS, CHUNKS], ids=["depths", "chunks"])
def test_together_as_alone(isa, dtype, shape, lines):
    memory = family(lines, shape, dtype)
    expected = each_alone(memory, lines, CpuOps(1, isa))
    orders = [np.random.default_rng(seed).permutation(len(lines)).tolist() for seed in range(3)]
    for threads, order in zip((1, 2, 3), orders, strict=True):
        assert_same(together(memory, lines, CpuOps(threads, isa), order), expected)


@isas
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 13, 33])
def test_any_number_together(isa, size):
    lines = [Line(2 * PARTITION + 1 + 5 * i, shared=2 if i else 0) for i in range(size)]
    memory = family(lines, GQA, np.float16)
    expected = each_alone(memory, lines, CpuOps(1, isa))
    for threads in (1, 2):
        assert_same(together(memory, lines, CpuOps(threads, isa), range(size)), expected)


@pytest.mark.parametrize("seed", range(12))
def test_random_families(seed):
    rng = np.random.default_rng(seed)
    lines: list[Line] = []
    for i in range(int(rng.integers(2, 14))):
        of = int(rng.integers(0, i)) if i else 0
        most = lines[of].length // PARTITION if i else 0
        shared = int(rng.integers(0, most + 1))
        length = shared * PARTITION + int(rng.integers(8, 700))
        lines.append(Line(length, of, shared, rows=int(rng.choice([1, 1, 1, 2, 5, 8]))))
    shape = SHAPES[seed % 3]
    memory = family(lines, shape, np.float16, seed)
    expected = each_alone(memory, lines, CpuOps(1))
    order = rng.permutation(len(lines)).tolist()
    assert_same(together(memory, lines, CpuOps(1 + seed % 3), order), expected)


@isas
def test_not_a_number_stays_with_its_sequence(isa):
    """One of those that share asks with NaN, another has NaN in its own tokens."""
    lines = [Line(PARTITION + 20, shared=1 if i else 0) for i in range(5)]
    memory = family(lines, GQA, np.float16)
    memory.seqs[1].q[:] = np.nan
    memory.seqs[2].v[PARTITION + 3] = np.nan
    memory.written[2] = 0
    memory.write(2, lines[2].length)
    rows = together(memory, lines, CpuOps(2, isa), range(5))
    assert [bool(np.isnan(r).any()) for r in rows] == [False, True, True, False, False]


# ---- it takes place


@pytest.mark.parametrize("depth", range(5))
def test_each_common_partition_is_one_item_for_each_head(depth):
    lines = [Line(4 * PARTITION + 9), Line(4 * PARTITION + 200, shared=depth)]
    memory = family(lines, GQA, np.float16)
    assert num_shared_items(memory, lines, CpuOps(2)) == depth * GQA.num_kv_heads


def test_what_a_query_does_not_see_whole_is_not_shared():
    heads = GQA.num_kv_heads
    for context, rows, parts in ((PARTITION, 1, 1), (PARTITION + 2, 3, 1), (PARTITION + 1, 3, 0)):
        lines = [Line(context, rows=rows), Line(context, shared=1, rows=rows)]
        memory = family(lines, GQA, np.float16)
        assert num_shared_items(memory, lines, CpuOps(1)) == parts * heads


def test_one_other_tile_ends_the_common_prefix():
    lines = [Line(3 * PARTITION + 9), Line(3 * PARTITION + 9, shared=3)]
    for tile, parts in ((0, 0), (15, 0), (16, 1), (47, 2), (48, 3)):
        memory = family(lines, GQA, np.float16)
        used = {*memory.tables[0], *memory.tables[1]}
        memory.tables[1][tile] = next(t for t in range(len(memory.kv)) if t not in used)
        assert num_shared_items(memory, lines, CpuOps(1)) == parts * GQA.num_kv_heads


def test_many_are_cut_into_items_that_serve_several():
    lines = [Line(PARTITION + 3, shared=1 if i else 0) for i in range(64)]
    shape = SHAPES[1]
    memory = family(lines, shape, np.float16)
    shared = num_shared_items(memory, lines, CpuOps(1))
    assert shape.num_kv_heads <= shared <= shape.num_kv_heads * len(lines) // 2

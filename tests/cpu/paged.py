"""A paged memory and steps on it, for tests of the attention kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from octavo.ops.base import TILE, AttentionInputs, AttentionShape, Batch

native = pytest.importorskip(
    "octavo._native", reason="the native kernels are not built (make native)"
)

ISAS = ("portable", "avx2", "avx512", "avx512bf16")
AVAILABLE = ISAS[: ISAS.index(native.best_isa()) + 1]
LAYERS = 2
LAYER = 1

Step = Sequence[tuple[int, int]]
"""(sequence, rows to compute) for each sequence of a step; rows may be 0."""


def make_inputs(parts: Iterable[tuple[int, int, Sequence[int]]]) -> AttentionInputs:
    """(rows, context_len, tiles) of each sequence -> AttentionInputs."""
    rows, contexts, tiles = zip(*parts, strict=True)
    return AttentionInputs(
        row_starts=np.cumsum([0, *rows], dtype=np.int32),
        context_lens=np.array(contexts, np.int32),
        tiles=np.array(list(itertools.chain(*tiles)), np.int32),
        tile_starts=np.cumsum([0, *map(len, tiles)], dtype=np.int32),
    )


def make_batch(kv: np.ndarray, attention: object = None, positions=(), slots=()) -> Batch:
    none = np.empty(0, np.int32)
    return Batch(
        none, np.array(positions, np.int32), np.array(slots, np.int32), attention, none, kv
    )


class Seq:
    """Random queries, keys and values of n tokens."""

    def __init__(self, n: int, shape: AttentionShape, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self.q = rng.standard_normal((n, shape.num_heads * shape.head_dim)).astype(np.float32) * 2
        self.k = rng.standard_normal((n, shape.num_kv_heads, shape.head_dim)).astype(np.float32)
        self.v = rng.standard_normal((n, shape.num_kv_heads, shape.head_dim)).astype(np.float32)


def bfloat16(x: np.ndarray) -> np.ndarray:
    """x rounded to bfloat16, to nearest even, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def rounds(isa: str, dtype: type) -> bool:
    """Whether that instruction set rounds what it multiplies to bfloat16."""
    return isa == "avx512bf16" and dtype == np.float16


def tolerance(isa: str, dtype: type) -> float:
    """How far an output may be from `oracle`: weights, of up to 1, are rounded to bfloat16 too."""
    return 6e-3 if rounds(isa, dtype) else 1e-5


def oracle(seq: Seq, shape: AttentionShape, dtype: type, isa: str = "") -> np.ndarray:
    """Causal attention in float64 on keys and values as `dtype` holds them, within shape.window.

    Queries, keys and values are rounded as that instruction set does it.
    """
    group = shape.num_heads // shape.num_kv_heads
    take = bfloat16 if rounds(isa, dtype) else np.asarray
    q = take(seq.q).reshape(seq.n, shape.num_heads, shape.head_dim).astype(np.float64)
    k = take(seq.k.astype(dtype)).astype(np.float64).repeat(group, axis=1)
    v = take(seq.v.astype(dtype)).astype(np.float64).repeat(group, axis=1)
    scores = q.transpose(1, 0, 2) @ k.transpose(1, 2, 0) * shape.scale
    everything = np.ones((seq.n, seq.n), bool)
    scores[:, np.triu(everything, 1)] = -np.inf
    if shape.window is not None:
        scores[:, np.tril(everything, -shape.window)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v.transpose(1, 0, 2)).transpose(1, 0, 2).reshape(seq.n, -1)


class Memory:
    """KV tiles for some sequences, scattered by `seed`; every slot holds NaN until its token is written.

    A tile that has left shape.window behind holds NaN again, and what the table says of it is the id of any tile.
    """

    def __init__(
        self, seqs: Sequence[Seq], shape: AttentionShape, dtype: type, seed: int = 0
    ) -> None:
        self.seqs, self.shape = seqs, shape
        counts = [-(-s.n // TILE) for s in seqs]
        num_tiles = sum(counts) + 3
        size = (num_tiles, LAYERS, 2, shape.num_kv_heads, shape.head_dim * TILE)
        self.kv = np.full(size, np.nan, dtype)
        ids = iter(np.random.default_rng(seed).permutation(num_tiles).tolist())
        self.tables = [list(itertools.islice(ids, n)) for n in counts]
        self.placeholder = next(ids)
        self.written = [0] * len(seqs)

    def write(self, seq_id: int, num_rows: int) -> None:
        hkv, d = self.shape.num_kv_heads, self.shape.head_dim
        seq, start = self.seqs[seq_id], self.written[seq_id]
        for p in range(start, start + num_rows):
            tile = self.kv[self.tables[seq_id][p // TILE], LAYER]
            tile[0].reshape(hkv, d, TILE)[:, :, p % TILE] = seq.k[p]
            tile[1].reshape(hkv, TILE, d)[:, p % TILE] = seq.v[p]
        self.written[seq_id] += num_rows

    def give_away(self, seq_id: int, first_row: int) -> None:
        """Forget the tiles that no row from first_row on sees."""
        if self.shape.window is None:
            return
        table, unused = self.tables[seq_id], self.placeholder
        for i in range(max(0, first_row - self.shape.window + 1) // TILE):
            if table[i] != unused:
                self.kv[table[i]] = np.nan
                table[i] = unused

    def step(self, ops: object, step: Step) -> list[np.ndarray]:
        """Write the step's tokens, then attend: the rows of each of its sequences."""
        parts, queries = [], []
        for seq_id, num_rows in step:
            self.write(seq_id, num_rows)
            end = self.written[seq_id]
            self.give_away(seq_id, end - num_rows)
            parts.append((num_rows, end, self.tables[seq_id][: -(-end // TILE)]))
            queries.append(self.seqs[seq_id].q[end - num_rows : end])
        inputs = make_inputs(parts)
        batch = make_batch(self.kv, ops.plan_attention(inputs))
        out = ops.paged_attention(np.concatenate(queries), LAYER, batch, self.shape)
        return np.split(out, inputs.row_starts[1:-1])


def run(ops: object, memory: Memory, steps: Iterable[Step]) -> list[np.ndarray]:
    """All steps -> the output rows [n, Hq * D] of each sequence, which must have been computed whole."""
    rows: list[list[np.ndarray]] = [[] for _ in memory.seqs]
    for step in steps:
        for (seq_id, _), out in zip(step, memory.step(ops, step), strict=True):
            rows[seq_id].append(out)
    assert memory.written == [s.n for s in memory.seqs]
    return [np.concatenate(r) for r in rows]


def chunked(lengths: Sequence[int], size: int) -> list[Step]:
    """All sequences together, `size` rows of each at a time."""
    steps = []
    for start in range(0, max(lengths), size):
        steps.append([(i, min(size, n - start)) for i, n in enumerate(lengths) if n > start])
    return steps


def alone(lengths: Sequence[int]) -> list[Step]:
    """One sequence after the other, each whole."""
    return [[(i, n)] for i, n in enumerate(lengths)]


def random_mix(lengths: Sequence[int], seed: int) -> list[Step]:
    """Random sequences in random order, decode rows and chunks of any size."""
    rng = np.random.default_rng(seed)
    left = list(lengths)
    steps = []
    while any(left):
        step = []
        for i in rng.permutation(len(left)).tolist():
            if left[i] and rng.random() < 0.7:
                n = 1 if rng.random() < 0.4 else int(rng.integers(1, min(left[i], 90) + 1))
                step.append((i, n))
                left[i] -= n
        if step:
            steps.append(step)
    return steps

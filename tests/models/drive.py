"""Drives a model without an engine: builds its batches by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.models.decoder import Model
from octavo.ops.base import F32, TILE, AnyArray, AttentionInputs, Batch, Ops


@dataclass(frozen=True)
class Run:
    """Rows start .. start + len(token_ids) of one sequence, whose tiles are `tiles`, in order."""

    token_ids: Sequence[int]
    start: int
    tiles: Sequence[int]


def num_tiles(num_tokens: int) -> int:
    return -(-num_tokens // TILE)


def make_batch(
    ops: Ops, kv: AnyArray, runs: Sequence[Run], logits_rows: Sequence[int] = ()
) -> Batch:
    """One step over several sequences; `logits_rows` are row numbers within the step."""
    positions, slots, tiles = [], [], []
    row_starts, tile_starts, context_lens = [0], [0], []
    for run in runs:
        own = range(run.start, run.start + len(run.token_ids))
        positions += own
        slots += [run.tiles[p // TILE] * TILE + p % TILE for p in own]
        tiles += run.tiles[: num_tiles(own.stop)]
        context_lens.append(own.stop)
        row_starts.append(len(positions))
        tile_starts.append(len(tiles))
    inputs = AttentionInputs(*(_i32(x) for x in (row_starts, context_lens, tiles, tile_starts)))
    return Batch(
        token_ids=_i32([t for run in runs for t in run.token_ids]),
        positions=_i32(positions),
        slots=_i32(slots),
        attention=ops.plan_attention(inputs),
        logits_rows=_i32(logits_rows),
        kv=kv,
    )


def new_kv(model: Model, tiles: int, dtype: str) -> AnyArray:
    """KV storage full of NaN: a slot that is read before it is written shows."""
    return np.full(model.kv_shape(tiles), np.nan, dtype)


def logits_of(
    model: Model, token_ids: Sequence[int], *, kv_dtype: str = "float32", chunk: int = 512
) -> F32:
    """Logits [T, V] of every position of one sequence, computed `chunk` tokens at a time."""
    count = num_tiles(len(token_ids))
    kv = new_kv(model, count, kv_dtype)
    parts = []
    for start in range(0, len(token_ids), chunk):
        run = Run(token_ids[start : start + chunk], start, list(range(count)))
        rows = range(len(run.token_ids))
        parts.append(model.forward(make_batch(model.ops, kv, [run], rows)))
    return np.concatenate(parts)


def log_softmax(logits: F32) -> np.ndarray:
    """Log-probabilities, float64, over the last axis."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def negative_log_likelihood(
    model: Model, token_ids: Sequence[int], *, kv_dtype: str, chunk: int = 256
) -> float:
    """Sum over the tokens after the first of -log p(token | the tokens before it).

    Logits are never held for more than `chunk` positions.
    """
    count = num_tiles(len(token_ids))
    kv = new_kv(model, count, kv_dtype)
    total = 0.0
    for start in range(0, len(token_ids) - 1, chunk):
        tokens = token_ids[start : start + chunk]
        following = token_ids[start + 1 : start + 1 + len(tokens)]
        run = Run(tokens, start, list(range(count)))
        logits = model.forward(make_batch(model.ops, kv, [run], range(len(following))))
        total -= log_softmax(logits)[np.arange(len(following)), following].sum()
    return total


def _i32(values: Sequence[int]) -> np.ndarray:
    return np.asarray(list(values), dtype=np.int32)

"""What paging costs: attention over scattered blocks against blocks in order, on the same data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from octavo.bench.kernels.attention import MAX_KV_BYTES, attention_bytes, over_layers
from octavo.bench.kernels.kv import batch_over, make_kv, queries
from octavo.bench.kernels.shapes import ModelShape
from octavo.bench.kernels.timing import in_turns
from octavo.bench.stats import ratio_of_medians
from octavo.errors import EngineError
from octavo.ops.base import TILE
from octavo.ops.cpu import CpuOps

POOL_BYTES = 512 << 20
"""Scattered blocks lie in a pool of at least this size (all layers together), as a server's do."""


def paged_results(
    ops: CpuOps,
    shape: ModelShape,
    contexts: tuple[int, ...],
    batches: tuple[int, ...],
    min_seconds: float,
    rounds: int,
) -> Iterator[dict[str, Any]]:
    """For each context and batch: seconds of both, and contiguous / paged (1: paging costs
    nothing).

    Blocks 0, 1, 2, ... hold the sequences in order; copies of them lie all over the rest of the
    pool. Raises EngineError if the two give different results.
    """
    for context in contexts:
        for num_seqs in batches:
            if attention_bytes(shape, context, num_seqs, 1) > MAX_KV_BYTES // 2:
                continue
            num_tiles = num_seqs * -(-context // TILE)
            tile_bytes = 4 * TILE * shape.num_kv_heads * shape.head_dim
            pool_tiles = max(2 * num_tiles, POOL_BYTES // (tile_bytes * shape.num_layers))
            kv = make_kv(shape, pool_tiles)
            ordered = np.arange(num_tiles, dtype=np.int32)
            rng = np.random.default_rng(num_tiles)
            places = num_tiles + rng.permutation(pool_tiles - num_tiles)[:num_tiles]
            scattered = places.astype(np.int32)
            ops.copy_tiles(kv.data, ordered, scattered)
            pair = [batch_over(ops, kv, t, context, num_seqs, 1) for t in (ordered, scattered)]
            q, heads = queries(shape, num_seqs), kv.attention
            first, second = (ops.paged_attention(q, 0, batch, heads) for batch in pair)
            if not np.array_equal(first, second):
                raise EngineError(
                    f"{shape.name}, context {context}, batch {num_seqs}: "
                    "scattered blocks gave other results"
                )
            calls = [over_layers(ops, kv, batch, num_seqs) for batch in pair]
            times = in_turns(calls[0], calls[1], min_seconds, rounds)
            ratio, low, high = ratio_of_medians(*times)
            yield {
                "model": shape.name,
                "context": context,
                "batch": num_seqs,
                "contiguous_us": 1e6 * float(np.median(times[0])),
                "paged_us": 1e6 * float(np.median(times[1])),
                "ratio": ratio,
                "low": low,
                "high": high,
            }

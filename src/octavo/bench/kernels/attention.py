"""Attention over blocks: decode steps and prompts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.bench.kernels.kv import KV, batch_over, make_kv, queries
from octavo.bench.kernels.result import Result
from octavo.bench.kernels.shapes import ModelShape
from octavo.bench.kernels.timing import Call, Rotation, seconds_of
from octavo.ops.base import TILE, Batch
from octavo.ops.cpu import CpuOps

MAX_KV_BYTES = 1 << 30
"""One layer of a batch may take so much; larger ones are left out."""

CHUNK = 512
"""Query rows of a prompt that are computed at once."""


def attention_results(
    ops: CpuOps,
    shape: ModelShape,
    contexts: tuple[int, ...],
    batches: tuple[int, ...],
    min_seconds: float,
    rounds: int,
) -> Iterator[Result]:
    """Decode (one query per sequence) for each batch and context; the last chunk of a prompt for
    each context.

    Block ids are in random order, as after some hours of service.
    """
    for context in contexts:
        jobs = [("decode", num_seqs, 1) for num_seqs in batches]
        jobs.append(("prompt", 1, min(CHUNK, context)))
        for kind, num_seqs, num_rows in jobs:
            num_bytes = attention_bytes(shape, context, num_seqs, num_rows)
            if num_bytes > MAX_KV_BYTES:
                continue
            num_tiles = num_seqs * -(-context // TILE)
            kv = make_kv(shape, num_tiles)
            order = np.random.default_rng(0).permutation(num_tiles).astype(np.int32)
            batch = batch_over(ops, kv, order, context, num_seqs, num_rows)
            call = over_layers(ops, kv, batch, num_seqs * num_rows)
            yield Result(
                kernel="attention",
                model=shape.name,
                what=f"{kind}, {num_seqs} x {context}",
                rows=num_seqs * num_rows,
                seconds=seconds_of(call, min_seconds, rounds),
                num_bytes=num_bytes,
                num_ops=attention_ops(shape, context, num_seqs, num_rows),
            )


def over_layers(ops: CpuOps, kv: KV, batch: Batch, num_rows: int) -> Call:
    """A call of the kernel that goes on to the next layer each time."""
    q, heads = queries(kv.shape, num_rows), kv.attention
    return Rotation(
        [
            lambda layer=layer: ops.paged_attention(q, layer, batch, heads)  # type: ignore[misc]
            for layer in range(kv.num_layers)
        ]
    )


def attention_bytes(shape: ModelShape, context: int, num_seqs: int, num_rows: int) -> int:
    """Float16 keys and values, once; float32 queries and results."""
    kv = 2 * 2 * shape.num_kv_heads * shape.head_dim * context
    rows = 2 * 4 * shape.num_heads * shape.head_dim * num_rows
    return num_seqs * (kv + rows)


def attention_ops(shape: ModelShape, context: int, num_seqs: int, num_rows: int) -> int:
    """Two multiply-adds for each dimension, head, query and token that it sees; the softmax is not
    counted."""
    first = context - num_rows + 1  # tokens that the first query sees
    seen = num_rows * (first + context) // 2
    return num_seqs * 4 * shape.num_heads * shape.head_dim * seen

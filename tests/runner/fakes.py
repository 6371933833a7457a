"""A model whose logits show what the runner fed it, over the reference op set."""

from __future__ import annotations

import numpy as np

from octavo.ops.base import F32, Batch
from octavo.ops.reference import ReferenceOps
from octavo.runner.kv_storage import KVShape, KVStorage

VOCAB = 50
ops = ReferenceOps()


def storage(num_blocks: int = 8, block_size: int = 16, dtype: str = "float16") -> KVStorage:
    shape = KVShape(num_layers=2, num_kv_heads=1, head_dim=4, block_size=block_size, dtype=dtype)
    return KVStorage(ops, shape, num_blocks)


class EchoModel:
    """The likeliest token after token t at position p is (t + p) % VOCAB; writes the id into its slot."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.most_rows = 0

    def hidden(self, batch: Batch) -> F32:
        self.batches.append(batch)
        for token_id, slot in zip(batch.token_ids, batch.slots, strict=True):
            batch.kv[slot // 16, 0, 1, 0, slot % 16] = token_id
        rows = batch.logits_rows
        return np.stack([batch.token_ids[rows], batch.positions[rows]], axis=1).astype(np.float32)

    def logits(self, hidden: F32) -> F32:
        self.most_rows = max(self.most_rows, len(hidden))
        out = np.zeros((len(hidden), VOCAB), dtype=np.float32)
        out[np.arange(len(hidden)), hidden.sum(axis=1).astype(int) % VOCAB] = 9.0
        out[hidden[:, 0] == 13] = np.nan
        return out

"""Small block stores: block n holds tokens n, n + 1, ...; its bytes follow from n."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from octavo.kv.prefix import Key, make_key, root_hash
from octavo.runner.block_records import Bytes
from octavo.runner.block_store import BlockStore
from octavo.runner.fingerprint import Fingerprint

BLOCK_BYTES = 9000  # three pages of lmdb
NUM_BYTES = 2 << 20


def fingerprint(model: str = "tiny", block_bytes: int = BLOCK_BYTES) -> Fingerprint:
    return Fingerprint(
        model=model,
        weights=f"weights of {model}",
        tokenizer="t",
        conversion="auto",
        kv_dtype="float16",
        block_size=16,
        block_bytes=block_bytes,
        kv="2 layers, 1 heads of 4",
        ops="reference",
    )


def key(n: int, num_tokens: int = 16) -> Key:
    return make_key(root_hash([str(n)]), range(n, n + num_tokens))


def block(n: int, block_bytes: int = BLOCK_BYTES) -> Bytes:
    return np.random.default_rng(n).integers(0, 256, block_bytes, dtype=np.uint8)


def open_store(
    path: Path, model: str = "tiny", num_bytes: int = NUM_BYTES, block_bytes: int = BLOCK_BYTES
) -> BlockStore:
    return BlockStore.open(path, fingerprint(model, block_bytes), num_bytes)


def read(store: BlockStore, slot: int, wanted: Key) -> Bytes | None:
    out = np.empty(store.block_bytes, np.uint8)
    return out if store.read(slot, wanted, out) else None

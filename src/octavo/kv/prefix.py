"""A block's hash says what it holds and all that came before it: a chain.

    hash 0 = H(root,   tokens  0..15, extra)        a block's keys and values depend on every token
    hash 1 = H(hash 0, tokens 16..31, extra)        before it, so its hash must too
    ...

256 bits of BLAKE2b: two different prefixes do not meet, so equal hashes are equal contents and
no comparison of tokens is needed. `extra` carries whatever else changes the keys and values: a
tenant's cache salt, an adapter.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

ROOT = bytes(32)
"""The parent of every sequence's first block."""


def encode_extra_keys(extra_keys: Sequence[str]) -> bytes:
    """Extra keys as bytes, each with its length: two different lists never look the same."""
    parts = [key.encode() for key in extra_keys]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def block_hash(parent: bytes, token_ids: Sequence[int], extra: bytes = b"") -> bytes:
    """The hash of the block that holds `token_ids` after the block with hash `parent`."""
    return blake2b(parent + array("q", token_ids).tobytes() + extra, digest_size=32).digest()


def extend_chain(
    hashes: list[bytes], token_ids: Sequence[int], num_blocks: int, block_size: int, extra: bytes
) -> None:
    """Append to `hashes` until it covers the first `num_blocks` full blocks of `token_ids`."""
    parent = hashes[-1] if hashes else ROOT
    for i in range(len(hashes), num_blocks):
        parent = block_hash(parent, token_ids[i * block_size : (i + 1) * block_size], extra)
        hashes.append(parent)

"""What a block store writes for a block, beside its bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from octavo.kv.prefix import TOKEN_BYTES, Key

Bytes = npt.NDArray[np.uint8]
"""A block's bytes, uint8 [block_bytes], contiguous."""

_FIXED = struct.Struct("=HQ16s32s32s")


@dataclass(frozen=True, slots=True)
class Label:
    """Which block lies in a slot: `sequence` counts writes, `checksum` is over key and bytes."""

    sequence: int
    checksum: bytes
    key: Key

    def pack(self) -> bytes:
        """The label as bytes."""
        key = self.key
        fixed = (key.num_tokens, self.sequence, self.checksum, key.hash, key.parent)
        return _FIXED.pack(*fixed) + key.tokens

    @classmethod
    def unpack(cls, data: bytes, block_size: int) -> Label | None:
        """The label of a block of up to `block_size` tokens; None if it is damaged."""
        if not has_right_length(data):
            return None
        num_tokens, sequence, checksum, own, parent = _FIXED.unpack_from(data)
        if not 0 < num_tokens <= block_size:
            return None
        key = Key(own, parent, data[_FIXED.size :])
        return cls(sequence, checksum, key) if key.is_sound else None


def has_right_length(data: bytes) -> bool:
    """True if a label is as long as it says. If not, lmdb's own length of it is damaged."""
    if len(data) < _FIXED.size:
        return False
    return len(data) == _FIXED.size + int(_FIXED.unpack_from(data)[0]) * TOKEN_BYTES


def label_bytes(block_size: int) -> int:
    """Bytes of a label of `block_size` tokens."""
    return _FIXED.size + block_size * TOKEN_BYTES


def checksum(seed: int, key: Key, data: Bytes) -> bytes:
    """xxh3_128 of a block. With the fingerprint as `seed`, no other model's block has it."""
    digest = xxhash.xxh3_128(key.hash + key.parent + key.tokens, seed=seed)
    digest.update(data.data)
    return digest.digest()

"""What a block holds, as a key; keys form chains.

    key 0 = H(root,  tokens  0..15)        a block's keys and values depend on every token before
    key 1 = H(key 0, tokens 16..31)        it, so its hash must too
    ...
    tail  = H(key n, tokens of a block that is not full)

256 bits of BLAKE2b: two different prefixes do not meet, so equal hashes are equal contents and
no comparison of tokens is needed. The root carries whatever else changes the keys and values: a
tenant's cache salt, an adapter.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

TOKEN_BYTES = array("i").itemsize


class Key(NamedTuple):
    """Identity of a block's contents: the hash of its parent and its tokens (int32, packed)."""

    hash: bytes
    parent: bytes
    tokens: bytes

    @property
    def num_tokens(self) -> int:
        """Tokens in the block; fewer than its size for a tail."""
        return len(self.tokens) // TOKEN_BYTES

    @property
    def is_sound(self) -> bool:
        """True if the hash is that of parent and tokens (a key read from a disk may be damaged)."""
        return self.hash == _digest(self.parent + self.tokens)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def root_hash(extra_keys: Sequence[str] = ()) -> bytes:
    """The parent of a sequence's first block; each key with its length, so lists never mix."""
    parts = [key.encode() for key in extra_keys]
    return _digest(b"".join(len(part).to_bytes(8, "little") + part for part in parts))


def make_key(parent: bytes, token_ids: Sequence[int]) -> Key:
    """The key of the block that holds `token_ids` after the block with hash `parent`."""
    tokens = array("i", token_ids).tobytes()
    return Key(_digest(parent + tokens), parent, tokens)


def extend_chain(
    chain: list[Key], root: bytes, token_ids: Sequence[int], num_blocks: int, block_size: int
) -> None:
    """Append to `chain` until it covers the first `num_blocks` full blocks of `token_ids`."""
    parent = chain[-1].hash if chain else root
    for i in range(len(chain), num_blocks):
        chain.append(make_key(parent, token_ids[i * block_size : (i + 1) * block_size]))
        parent = chain[-1].hash


class Children:
    """Which blocks follow a block: finds the one that shares most of its tokens with a text.

    Per parent the tokens are kept sorted. Whatever begins like a text stands next to the place
    where the text itself would stand, so two comparisons find the best.
    """

    def __init__(self) -> None:
        self._of: dict[bytes, list[tuple[bytes, Key]]] = {}

    def add(self, key: Key) -> None:
        """Enter a key that is not here yet."""
        insort(self._of.setdefault(key.parent, []), (key.tokens, key))

    def remove(self, key: Key) -> None:
        """Take a key out that is here."""
        siblings = self._of[key.parent]
        i = bisect_left(siblings, (key.tokens, key))
        assert siblings[i][1] == key, "no such child"
        del siblings[i]
        if not siblings:
            del self._of[key.parent]

    def longest_match(self, parent: bytes, token_ids: Sequence[int]) -> tuple[Key, int] | None:
        """The child of `parent` that begins most like `token_ids`, and how many tokens agree."""
        siblings = self._of.get(parent)
        if not siblings or not token_ids:
            return None
        text = array("i", token_ids).tobytes()
        i = bisect_left(siblings, (text,))
        near = [key for _, key in siblings[max(0, i - 1) : i + 1]]
        num, best = max(((_num_common(key.tokens, text), key) for key in near), key=lambda x: x[0])
        return (best, num) if num else None

    def __iter__(self) -> Iterator[Key]:
        return (key for siblings in self._of.values() for _, key in siblings)


def _num_common(a: bytes, b: bytes) -> int:
    """Leading tokens that two packed texts have in common."""
    num = min(len(a), len(b)) // TOKEN_BYTES
    if a[: num * TOKEN_BYTES] == b[: num * TOKEN_BYTES]:
        return num
    pairs = zip(array("i", a), array("i", b), strict=False)
    return next(i for i, (x, y) in enumerate(pairs) if x != y)

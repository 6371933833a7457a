"""What the KV manager holds for a sequence, found by going through all keys there are."""

from __future__ import annotations

from array import array

from octavo.kv.manager import KVManager
from octavo.kv.moves import Tier
from octavo.kv.prefix import Key, make_key, root_hash


class Search:
    """`num_full`: leading full blocks that lie on any of `tiers`; one token stays to be computed."""

    def __init__(self, kv: KVManager, tokens: list[int], salt: str, *tiers: Tier) -> None:
        self.kv = kv
        known, size = {key.hash for key in self.keys(*tiers)}, kv.block_size
        self.parent, self.num_full = root_hash((salt,)), 0
        while (self.num_full + 1) * size < len(tokens):
            start = self.num_full * size
            key = make_key(self.parent, tokens[start : start + size])
            if key.hash not in known:
                break
            self.parent, self.num_full = key.hash, self.num_full + 1
        start = self.num_full * size
        self.rest = tokens[start : min(len(tokens) - 1, start + size)]

    def keys(self, *tiers: Tier) -> list[Key]:
        memory = self.kv.memory
        of = {Tier.DEVICE: memory.pool, Tier.HOST: memory.host, Tier.DISK: memory.disk}
        return [key for tier in tiers for key in of[tier].all_keys()]

    def longest_part(self, *tiers: Tier) -> int:
        """How many of the tokens after the full blocks a block on one of `tiers` begins with."""
        texts = [array("i", key.tokens) for key in self.keys(*tiers) if key.parent == self.parent]
        return max((_num_common(list(text), self.rest) for text in texts), default=0)


def _num_common(a: list[int], b: list[int]) -> int:
    num = min(len(a), len(b))
    return next((i for i in range(num) if a[i] != b[i]), num)

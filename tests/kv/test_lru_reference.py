"""Hits over a random trace equal those of a plain LRU list of `num_blocks` full blocks, to the block."""

from __future__ import annotations

import random
from collections import OrderedDict

from octavo.kv.manager import KVManager

BLOCK = 4


def lru_hits(requests: list[list[int]], capacity: int) -> int:
    """Blocks touched back to front, the least recent goes; only full blocks, never the whole prompt."""
    resident: OrderedDict[tuple[int, ...], None] = OrderedDict()
    hits = 0
    for tokens in requests:
        prefixes = [tuple(tokens[: i + BLOCK]) for i in range(0, len(tokens) - BLOCK + 1, BLOCK)]
        for prefix in prefixes[: (len(tokens) - 1) // BLOCK]:
            if prefix not in resident:
                break
            hits += 1
        for prefix in reversed(prefixes):
            if prefix in resident:
                resident.move_to_end(prefix)
            else:
                if len(resident) >= capacity:
                    resident.popitem(last=False)
                resident[prefix] = None
    return hits


def test_hits_are_those_of_plain_lru() -> None:
    rng = random.Random(7)
    stems = [[rng.randrange(9) for _ in range(rng.randrange(1, 60))] for _ in range(12)]
    requests = [
        stem[: rng.randrange(1, len(stem) + 1)] + [rng.randrange(9)] * rng.randrange(12)
        for stem in rng.choices(stems, k=1500)
    ]
    for capacity in (20, 37, 64, 400):
        kv, hits = KVManager(capacity, BLOCK), 0
        for i, tokens in enumerate(requests):
            hits += kv.match(str(i), tokens) // BLOCK
            assert kv.extend(str(i), len(tokens)) is not None
            kv.commit(str(i), tokens, len(tokens))
            kv.free(str(i))
        kv.check()
        assert hits == lru_hits(requests, capacity), capacity

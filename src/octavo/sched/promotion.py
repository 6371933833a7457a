"""Bring a run of blocks back, or compute it again: whichever has been measured to be quicker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from octavo.kv.moves import Place, Tier

MEMORY = 0.8
"""Earlier measurements fade by this factor with each new one."""

LEAST_TOKENS = 64
"""Steps with fewer tokens say how fast a machine reads its weights, not how fast it computes."""

RETRY_AFTER = 32
"""Runs after which a slower tier is tried again: only a copy tells whether it still is slower."""


class Promotion:
    """Compares copying with computing. Until both have been measured, it copies."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._seconds_per_token = 0.0
        self._seconds_per_block: dict[Tier, float] = {Tier.DEVICE: 0.0}
        self._num_refused: Counter[Tier] = Counter()  # runs since the tier was last copied from

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """A step computed `num_tokens` tokens in `seconds`."""
        if num_tokens < LEAST_TOKENS or seconds <= 0.0:
            return
        now, before = seconds / num_tokens, self._seconds_per_token
        self._seconds_per_token = before * MEMORY + now * (1 - MEMORY) if before else now

    def observe_copies(self, seconds_per_block: Mapping[Tier, float]) -> None:
        """What bringing a block from each tier takes."""
        self._seconds_per_block.update(seconds_per_block)

    def num_worthwhile(self, places: Sequence[Place]) -> int:
        """How many of the next blocks to bring: run by run, as long as a tier beats computing."""
        num = 0
        for tier, run in groupby(places, key=lambda place: place.tier):
            is_due = self._num_refused[tier] >= RETRY_AFTER
            if not (self._beats_computing(tier) or is_due):
                self._num_refused[tier] += 1
                break
            self._num_refused[tier] = 0
            num += len(list(run))
        return num

    def _beats_computing(self, tier: Tier) -> bool:
        per_block = self._seconds_per_block.get(tier)
        if per_block is None or not self._seconds_per_token:
            return True
        return per_block <= self._seconds_per_token * self._block_size

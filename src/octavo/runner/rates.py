"""How fast blocks move between tiers, as measured."""

from __future__ import annotations

from octavo.kv.moves import Tier

Way = tuple[Tier, Tier]
"""From one tier to another."""

_MEMORY = 0.9
"""Weight of the past when a new measurement comes."""


class Rates:
    """Blocks and time per way. Each way is written by one thread only."""

    def __init__(self) -> None:
        self.num_blocks: dict[Way, int] = {}
        """Blocks moved since the start."""
        self.seconds: dict[Way, float] = {}
        """Time spent on that."""
        self._recent: dict[Way, tuple[float, float]] = {}
        self._seconds_up: dict[Tier, float] = {}

    def add(self, way: Way, num_blocks: int, num_bytes: int, seconds: float) -> None:
        """Note that `num_blocks` blocks, together `num_bytes`, took `seconds`."""
        self.num_blocks[way] = self.num_blocks.get(way, 0) + num_blocks
        self.seconds[way] = self.seconds.get(way, 0.0) + seconds
        past_bytes, past_seconds = self._recent.get(way, (0.0, 0.0))
        # Bytes and time fade alike, so that a short measurement weighs little.
        recent = (_MEMORY * past_bytes + num_bytes, _MEMORY * past_seconds + seconds)
        self._recent[way] = recent
        source, to = way
        if to is Tier.DEVICE and source is not to and recent[0]:
            self._seconds_up[source] = recent[1] / recent[0] * (num_bytes / num_blocks)

    @property
    def seconds_up(self) -> dict[Tier, float]:
        """Seconds that a block takes from a slower tier to the device, lately; a copy."""
        return dict(self._seconds_up)

    @property
    def bytes_per_second(self) -> dict[Way, float]:
        """Of the last ten or so measurements; ways that were never used are not in it."""
        recent = dict(self._recent)
        return {way: num / max(seconds, 1e-9) for way, (num, seconds) in recent.items()}

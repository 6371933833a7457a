"""Goodput: requests per second that kept all of the limits asked of them (DistServe, OSDI 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from octavo.bench.serve.outcome import Outcome
from octavo.errors import ConfigError

NAMES = ("ttft", "tpot", "e2el")


def parse_goodput(texts: Sequence[str]) -> dict[str, float]:
    """('ttft:500', 'tpot:50 e2el:9000') in ms -> seconds by name. Raises ConfigError."""
    limits = {}
    for part in (p for text in texts for p in text.replace(",", " ").split()):
        name, _, number = part.partition(":")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in NAMES or not 0 < value < math.inf:
            raise ConfigError(
                f"--goodput: expected NAME:MILLISECONDS with a name of {', '.join(NAMES)}, "
                f"got {part!r}",
                "goodput",
            )
        limits[name] = value / 1000
    return limits


def num_good(outcomes: Sequence[Outcome], limits: Mapping[str, float]) -> int:
    """How many finished within all limits; a request of one token has no time per token to miss."""
    return sum(_is_good(o, limits) for o in outcomes if o.error is None)


def _is_good(outcome: Outcome, limits: Mapping[str, float]) -> bool:
    taken = {"ttft": outcome.ttft, "tpot": outcome.tpot or 0.0, "e2el": outcome.latency}
    return all(taken[name] <= limit for name, limit in limits.items())

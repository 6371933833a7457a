"""When requests are sent."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from octavo.bench.workload.sample import Sample


def arrival_times(
    samples: Sequence[Sample], rate: float | None, burstiness: float, seed: int
) -> list[float]:
    """Seconds after the start for each sample, rising from 0.

    `rate` None: the samples' own times (0 where there are none). inf: all at once. Else gaps are
    drawn from a gamma distribution of the mean 1/rate and the shape `burstiness`; 1 is a Poisson
    process.
    """
    if rate is None:
        return [s.arrival or 0.0 for s in samples]
    if math.isinf(rate):
        return [0.0] * len(samples)
    source = random.Random(seed)
    times, now = [], 0.0
    for _ in samples:
        times.append(now)
        now += source.gammavariate(burstiness, 1 / (rate * burstiness))
    return times

"""Mean, median, deviation and percentiles of a list of numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one list, in its unit; all 0 for an empty one. `percentiles`: (which, value) in
    order."""

    mean: float
    median: float
    std: float
    percentiles: tuple[tuple[float, float], ...]


def percentile(values: Sequence[float], which: float) -> float:
    """The `which`th percentile (0 to 100), interpolated between neighbours; NaN for no values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * which / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(values: Sequence[float], percentiles: Sequence[float] = (99,)) -> Summary:
    """Mean, median, standard deviation (of the population, as NumPy's) and percentiles."""
    if not values:
        return Summary(0.0, 0.0, 0.0, tuple((p, 0.0) for p in percentiles))
    return Summary(
        mean=statistics.fmean(values),
        median=statistics.median(values),
        std=statistics.pstdev(values),
        percentiles=tuple((p, percentile(values, p)) for p in percentiles),
    )


def percentile_name(which: float) -> str:
    """99.0 -> 'p99', 99.9 -> 'p99.9'."""
    return f"p{which:g}"


def parse_percentiles(text: str) -> tuple[float, ...]:
    """'50,90,99' -> (50.0, 90.0, 99.0). Raises ConfigError."""
    try:
        values = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        values = ()
    if not values or not all(0 <= v <= 100 for v in values):
        raise ConfigError(
            f"--metric-percentiles: expected numbers from 0 to 100 such as 50,90,99, got {text!r}",
            "metric_percentiles",
        )
    return values


def ratio_of_medians(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """median(a) / median(b), and the least and greatest a[i] / b[i] (runs taken in turns)."""
    each = [x / y for x, y in zip(a, b, strict=True)]
    return statistics.median(a) / statistics.median(b), min(each), max(each)

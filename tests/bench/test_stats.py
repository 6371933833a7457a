from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.stats import (
    parse_percentiles,
    percentile,
    percentile_name,
    ratio_of_medians,
    summarise,
)
from octavo.errors import ConfigError

FLOATS = st.floats(0, 1e6)


def test_by_hand() -> None:
    values = [4.0, 1.0, 3.0, 2.0, 10.0]
    s = summarise(values, (0, 50, 75, 90, 100))
    assert (s.mean, s.median) == (4.0, 3.0)
    assert s.std == pytest.approx(math.sqrt((0 + 9 + 1 + 4 + 36) / 5))
    # Places 0, 2, 3, 3.6 and 4 of 1 2 3 4 10.
    assert s.percentiles == ((0, 1.0), (50, 3.0), (75, 4.0), (90, pytest.approx(7.6)), (100, 10.0))


def test_nothing_and_one() -> None:
    assert summarise([]).percentiles == ((99, 0.0),)
    assert summarise([]).mean == 0.0
    assert math.isnan(percentile([], 50))
    assert summarise([7.0]).percentiles == ((99, 7.0),)
    assert summarise([7.0]).std == 0.0


@given(st.lists(FLOATS, min_size=1, max_size=30), st.floats(0, 100))
def test_like_numpy(values: list[float], which: float) -> None:
    assert percentile(values, which) == pytest.approx(float(np.percentile(values, which)), abs=1e-9)
    s = summarise(values)
    assert s.std == pytest.approx(float(np.std(values)), abs=1e-6)
    assert s.mean == pytest.approx(statistics.fmean(values))


def test_names_and_flags() -> None:
    assert [percentile_name(p) for p in (99.0, 99.9, 5)] == ["p99", "p99.9", "p5"]
    assert parse_percentiles("50, 99.9") == (50.0, 99.9)
    for text in ("", "x", "50,101", "-1", "nan"):
        with pytest.raises(ConfigError, match="--metric-percentiles"):
            parse_percentiles(text)


def test_ratio_of_medians() -> None:
    assert ratio_of_medians([31, 33, 35], [12, 14, 16]) == (33 / 14, 35 / 16, 31 / 12)

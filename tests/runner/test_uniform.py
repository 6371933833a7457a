from __future__ import annotations

import numpy as np

from octavo.runner.uniform import uniform


def test_same_key_same_number_and_range():
    keys = [(s, i, p) for s in (-1, 0, 1, 2**63) for i in (0, 1) for p in (0, 1, 999)]
    values = [uniform(*k) for k in keys]
    assert values == [uniform(*k) for k in reversed(keys)][::-1]
    assert all(0 <= v < 1 for v in values)
    assert len(set(values)) == len(keys)  # neither key part is lost


def test_known_values():
    # The draws of a seed are part of the promise "same seed, same tokens": they may not change.
    assert [uniform(0, 0, 0), uniform(42, 1, 7)] == KNOWN


KNOWN = [0.13870941014555427, 0.8338220679112145]


def test_uniform_over_each_key():
    for key in range(3):
        draws = [uniform(*(n if k == key else 5 for k in range(3))) for n in range(20000)]
        counts, _ = np.histogram(draws, bins=64, range=(0, 1))
        chi2 = float(((counts - 312.5) ** 2 / 312.5).sum())
        assert chi2 < 118, (key, chi2)  # 63 degrees of freedom: p < 3e-5
        neighbours = np.corrcoef(draws[:-1], draws[1:])[0, 1]
        assert abs(neighbours) < 0.03

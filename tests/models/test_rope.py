"""Rotary tables: properties that hold by definition. Values against transformers are in test_parity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octavo.models.rope import inverse_frequencies, rope_table
from octavo.models.spec import RopeSpec

PLAIN = RopeSpec(theta=10000.0, rotary_dim=32, interleaved=False)


def test_plain_frequencies_and_table() -> None:
    expected = 10000.0 ** -(np.arange(16) / 16)
    np.testing.assert_allclose(inverse_frequencies(PLAIN, 10), expected, rtol=1e-12)
    table = rope_table(PLAIN, 50)
    assert table.cos.shape == (50, 16)
    assert table.cos.dtype == table.sin.dtype == np.float32
    np.testing.assert_allclose(table.sin[7], np.sin(7 * expected), atol=1e-7)
    np.testing.assert_array_equal(table.cos[0], 1)


def test_the_table_of_a_position_does_not_depend_on_how_many_there_are() -> None:
    for kind in ("none", "linear", "yarn", "llama3"):
        spec = replace(PLAIN, kind=kind, factor=4.0, original_max_position=64)
        np.testing.assert_array_equal(rope_table(spec, 200).cos[:64], rope_table(spec, 64).cos)


def test_linear_divides_positions() -> None:
    stretched = rope_table(replace(PLAIN, kind="linear", factor=2.0), 21)
    np.testing.assert_allclose(stretched.cos[::2], rope_table(PLAIN, 11).cos, atol=1e-6)


def test_dynamic_is_settled_by_the_longest_length() -> None:
    spec = replace(PLAIN, kind="dynamic", factor=2.0, original_max_position=128)
    plain = inverse_frequencies(PLAIN, 128)
    np.testing.assert_array_equal(inverse_frequencies(spec, 100), plain)
    np.testing.assert_array_equal(inverse_frequencies(spec, 128), plain)
    longer = inverse_frequencies(spec, 256)
    assert longer[0] == 1.0
    # the lowest frequency is stretched by exactly growth = 2 * 256/128 - 1
    np.testing.assert_allclose(plain[-1] / longer[-1], 3.0, rtol=1e-9)


@pytest.mark.parametrize("kind", ["yarn", "llama3"])
def test_high_frequencies_stay_and_low_ones_are_divided(kind: str) -> None:
    spec = replace(PLAIN, kind=kind, factor=8.0, original_max_position=512, beta_fast=8.0)
    ratio = inverse_frequencies(PLAIN, 1) / inverse_frequencies(spec, 1)
    assert ratio[0] == 1.0
    np.testing.assert_allclose(ratio[-1], 8.0)
    assert (np.diff(ratio) >= 0).all()


def test_attention_factor_scales_both_tables() -> None:
    table = rope_table(replace(PLAIN, attention_factor=1.5), 9)
    np.testing.assert_allclose(table.cos**2 + table.sin**2, 2.25, rtol=1e-6)


def test_frequency_factors_divide() -> None:
    factors = tuple(float(i) for i in range(1, 17))
    got = inverse_frequencies(replace(PLAIN, freq_factors=factors), 1)
    np.testing.assert_allclose(got, inverse_frequencies(PLAIN, 1) / factors)

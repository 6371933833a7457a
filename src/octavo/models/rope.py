"""Rotary position tables (Su et al. 2021, RoFormer) and the ways to stretch them to longer contexts.

- linear: all frequencies divided by `factor` (Chen et al. 2023, position interpolation).
- dynamic: NTK-aware base that grows with the length. For the exactness contract a key, once stored, may not depend on how
  long its sequence became later, so the base is settled once, from the longest length served (`max_len`); up to the
  original length nothing is stretched.
- yarn: low frequencies divided by `factor`, high ones kept, a ramp between (Peng et al. 2023, §3.2), and a
  temperature on cos and sin.
- llama3: the same idea with the borders given as wavelengths (Llama 3.1).
- freq_factors: divisors stored in a GGUF file.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from octavo.models.spec import RopeSpec
from octavo.ops.base import Rope

F64 = npt.NDArray[np.float64]


def rope_table(spec: RopeSpec, max_len: int) -> Rope:
    """cos and sin, float32 [max_len, rotary_dim / 2], for the positions 0 .. max_len - 1."""
    angles = np.arange(max_len, dtype=np.float64)[:, None] * inverse_frequencies(spec, max_len)
    scale = spec.attention_factor
    cos = (np.cos(angles) * scale).astype(np.float32)
    sin = (np.sin(angles) * scale).astype(np.float32)
    return Rope(cos, sin, spec.interleaved)


def inverse_frequencies(spec: RopeSpec, max_len: int) -> F64:
    """Angle per position of each pair of dimensions, float64 [rotary_dim / 2]."""
    frequencies = _base_frequencies(spec, spec.theta)
    if spec.kind == "linear":
        frequencies = frequencies / spec.factor
    elif spec.kind == "dynamic":
        frequencies = _dynamic(spec, max_len)
    elif spec.kind == "yarn":
        frequencies = _yarn(spec, frequencies)
    elif spec.kind == "llama3":
        frequencies = _llama3(spec, frequencies)
    if spec.freq_factors is not None:
        frequencies = frequencies / np.asarray(spec.freq_factors, np.float64)
    return frequencies


def _base_frequencies(spec: RopeSpec, theta: float) -> F64:
    exponents = np.arange(0, spec.rotary_dim, 2, dtype=np.float64) / spec.rotary_dim
    return np.asarray(1.0 / np.power(theta, exponents), np.float64)


def _dynamic(spec: RopeSpec, max_len: int) -> F64:
    stretch = max(max_len / spec.original_max_position, 1.0)
    growth = spec.factor * stretch - (spec.factor - 1.0)
    exponent = spec.rotary_dim / max(spec.rotary_dim - 2, 1)
    return _base_frequencies(spec, spec.theta * growth**exponent)


def _yarn(spec: RopeSpec, frequencies: F64) -> F64:
    def dimension(rotations: float) -> float:
        """The pair that turns so many times within the original context."""
        wavelengths = spec.original_max_position / (rotations * 2 * math.pi)
        return spec.rotary_dim * math.log(wavelengths) / (2 * math.log(spec.theta))

    low, high = dimension(spec.beta_fast), dimension(spec.beta_slow)
    if spec.truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, spec.rotary_dim - 1.0)
    if low == high:
        high += 0.001  # a step, without a division by zero
    ramp = np.clip((np.arange(spec.rotary_dim // 2) - low) / (high - low), 0.0, 1.0)
    return np.asarray(frequencies * (1.0 - ramp) + frequencies / spec.factor * ramp, np.float64)


def _llama3(spec: RopeSpec, frequencies: F64) -> F64:
    rotations = spec.original_max_position * frequencies / (2 * math.pi)
    span = spec.high_freq_factor - spec.low_freq_factor
    kept = np.clip((rotations - spec.low_freq_factor) / span, 0.0, 1.0)
    return np.asarray(frequencies * kept + frequencies / spec.factor * (1.0 - kept), np.float64)

"""Random numbers by counter: a draw depends on its key alone, never on how many came before."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters every
    bit."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, a function of the three keys (any integers)."""
    h = _mix((seed + _GAMMA) & _MASK)
    h = _mix((h + index + _GAMMA) & _MASK)
    h = _mix((h + position + _GAMMA) & _MASK)
    return (h >> 11) * 2.0**-53

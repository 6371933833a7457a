"""Which tokens may be drawn (min_p, top_k, top_p), and the draw itself. No full sort of a
vocabulary."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.ops.base import F32
from octavo.request import SamplingParams

Ids = npt.NDArray[np.intp]

_GROUP = 64


def largest(values: F32, count: int) -> Ids:
    """Indices, ascending, of the `count` largest of `values` [n]; of equal ones the first come
    in."""
    if count >= len(values):
        return np.arange(len(values))
    border = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > border)
    equal = np.flatnonzero(values == border)[: count - len(above)]
    return np.sort(np.concatenate((above, equal)))


def kept(x: F32, weights: F32, params: SamplingParams) -> Ids | None:
    """Ids, ascending, that min_p, then top_k, then top_p leave; None if none of them is in force.

    x [V]: logits. weights [V]: exp of (x - max) / temperature, so the best has 1.
    """
    ids: Ids | None = None
    if params.min_p > 0.0:
        ids = np.flatnonzero(weights >= np.float32(params.min_p))
    if 0 < params.top_k < (len(x) if ids is None else len(ids)):
        ids = largest(x, params.top_k) if ids is None else ids[largest(x[ids], params.top_k)]
    if params.top_p < 1.0:
        ids = _nucleus(weights, ids, params.top_p)
    return ids


def _nucleus(weights: F32, ids: Ids | None, top_p: float) -> Ids:
    """The fewest of `ids` (None: all), likeliest first, that hold `top_p` of their weight
    together."""
    if ids is None:
        mass = top_p * float(weights.sum(dtype=np.float64))
        ids = _likely(weights, mass)
        own = weights[ids]
    else:
        own = weights[ids]
        mass = top_p * float(own.sum(dtype=np.float64))
    # Sorting values alone, without their ids, is several times faster than an argsort.
    running = np.cumsum(np.sort(own)[::-1], dtype=np.float64)
    count = int(np.searchsorted(running, mass, side="left")) + 1
    return ids[largest(own, count)]


def _likely(weights: F32, mass: float) -> Ids:
    """Ids, ascending, of all weights above some limit that hold `mass` together: what is left to
    sort."""
    for limit in (1e-2, 1e-4, 1e-6):
        ids = np.flatnonzero(weights >= np.float32(limit))
        if float(weights[ids].sum(dtype=np.float64)) >= mass:
            return ids
    return np.arange(len(weights))


def draw(weights: F32, u: float) -> int:
    """The index that u in [0, 1) falls on when `weights` [n] (at least one above 0) are laid end to
    end.

    Two levels (groups of 64, then the group) in place of one running sum over the vocabulary.
    """
    whole = len(weights) // _GROUP * _GROUP
    sums = weights[:whole].reshape(-1, _GROUP).sum(axis=1, dtype=np.float64)
    if whole < len(weights):
        sums = np.append(sums, weights[whole:].sum(dtype=np.float64))
    running = np.cumsum(sums)
    target = u * float(running[-1])
    group = _first_above(running, sums, target)
    inside = weights[group * _GROUP : (group + 1) * _GROUP]
    before = float(running[group - 1]) if group else 0.0
    return group * _GROUP + _first_above(
        np.cumsum(inside, dtype=np.float64), inside, target - before
    )


def _first_above(
    running: npt.NDArray[np.float64], parts: npt.NDArray[np.floating], target: float
) -> int:
    """First index whose running sum exceeds `target`; rounding past the end gives the last part
    above 0."""
    i = int(np.searchsorted(running, target, side="right"))
    return i if i < len(parts) else int(np.flatnonzero(parts > 0)[-1])

"""The machine's own peaks, measured in the same run as the kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from octavo.bench.kernels.native import _native

_Counted = Callable[[], int]
_Peak = Callable[[_native.Context, int], int]

READ_BYTES = 256 << 20
"""More than caches hold."""

TRIES = 7


@dataclass(frozen=True, slots=True)
class Peaks:
    """The best of a few tries, on all threads of the context.

    `read`: bytes per second from memory. `fma`, `dot`: operations per second, a multiply-add is two.
    `dot_name`: the instruction that `dot` was measured with.
    """

    isa: str
    threads: int
    read: float
    fma: float
    dot: float
    dot_name: str

    def ops(self, is_integer: bool) -> float:
        """The peak that a kernel's arithmetic is held against."""
        return self.dot if is_integer else self.fma


def measure_peaks(context: _native.Context, min_seconds: float) -> Peaks:
    """Measure all three, in turns: other work on the machine then hits all of them alike."""
    buffer = np.ones(READ_BYTES, np.uint8)  # written, or all of it would be one page of zeros
    fma, dot = (
        _rounds(op, context, min_seconds / TRIES) for op in (_native.peak_fma, _native.peak_dot)
    )
    best = [0.0, 0.0, 0.0]
    for _ in range(TRIES):
        rates = (
            _rate(lambda: _native.peak_read(context, buffer)),
            _rate(lambda: _native.peak_fma(context, fma)),
            _rate(lambda: _native.peak_dot(context, dot)),
        )
        best = [max(b, r) for b, r in zip(best, rates, strict=True)]
    name = _native.peak_dot_name(context)
    return Peaks(context.isa, context.threads, best[0], best[1], best[2], name)


def _rate(call: _Counted) -> float:
    begin = time.perf_counter()
    done = call()
    return done / (time.perf_counter() - begin)


def _rounds(op: _Peak, context: _native.Context, seconds: float) -> int:
    """Rounds that take about `seconds`, at least 10 ms."""
    rounds, taken = 1000, 0.0
    while taken < 0.005:
        rounds *= 4
        begin = time.perf_counter()
        op(context, rounds)
        taken = time.perf_counter() - begin
    return max(rounds, int(rounds * max(seconds, 0.01) / taken))

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

    `read`: bytes per second from memory. `fma`, `dot`: operations per second, a multiply-add is
    two. `dot_name`: the instruction that `dot` was measured with.
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


class PeakMeter:
    """Measures the three peaks, in turns, again and again: between the kernels, so that both see
    the same machine."""

    def __init__(self, context: _native.Context, min_seconds: float) -> None:
        self._context = context
        self._buffer = np.ones(READ_BYTES, np.uint8)  # written: else all of it is one page of zeros
        seconds = min_seconds / TRIES
        self._fma = _rounds(_native.peak_fma, context, seconds)
        self._dot = _rounds(_native.peak_dot, context, seconds)
        self._best = (0.0, 0.0, 0.0)
        self.sample(TRIES)

    def sample(self, tries: int = 1) -> None:
        """Measure each peak so many times; the best ever seen stands."""
        context, fma, dot = self._context, self._fma, self._dot
        for _ in range(tries):
            read, f, d = self._best
            self._best = (
                max(read, _rate(lambda: _native.peak_read(context, self._buffer))),
                max(f, _rate(lambda: _native.peak_fma(context, fma))),
                max(d, _rate(lambda: _native.peak_dot(context, dot))),
            )

    @property
    def peaks(self) -> Peaks:
        """The best so far."""
        context = self._context
        name = _native.peak_dot_name(context)
        return Peaks(context.isa, context.threads, *self._best, dot_name=name)


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

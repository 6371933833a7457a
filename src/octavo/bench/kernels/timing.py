"""How long a call takes."""

from __future__ import annotations

import time
from collections.abc import Callable

Call = Callable[[], object]


def repeat_count(call: Call, min_seconds: float) -> int:
    """How many calls take about `min_seconds`. The first call is not counted: it warms up."""
    call()
    count = 1
    while True:
        taken = run(call, count)
        if taken >= min_seconds or count >= 1 << 20:
            return count
        goal = count * min_seconds / max(taken, 1e-9)
        count = max(count + 1, min(int(goal) + 1, count * 10))


def run(call: Call, count: int) -> float:
    """Seconds that `count` calls take."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - begin


def seconds_of(call: Call, min_seconds: float, rounds: int) -> float:
    """Seconds of one call: the best of `rounds` rounds, which take `min_seconds` together.

    The best, as for the peaks: other work on the machine only ever adds time.
    """
    count = repeat_count(call, min_seconds / rounds)
    return min(run(call, count) / count for _ in range(rounds))


def in_turns(a: Call, b: Call, min_seconds: float, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of one call of each, A B A B ..., for `rounds` rounds of at least `min_seconds` /
    rounds."""
    count = max(repeat_count(a, min_seconds / rounds), repeat_count(b, min_seconds / rounds))
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds):
        # Every second round the other way round: what comes first may find the cache in another
        # state.
        for side in (0, 1) if i % 2 == 0 else (1, 0):
            times[side].append(run((a, b)[side], count) / count)
    return times


class Rotation:
    """Calls one function after the other, so that each finds its data out of the cache again."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls
        self._next = 0

    def __call__(self) -> None:
        """The next one."""
        self._calls[self._next]()
        self._next = (self._next + 1) % len(self._calls)

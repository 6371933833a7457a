"""Where paging cannot pay: nobody waits for memory, so all that is left of it is what it costs.

Both engines run the same requests in turns, new ones in each turn, so that nothing is found in a
prefix cache.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.bench.compare.measure import ALLOCATORS, WARM_UP
from octavo.bench.compare.workloads import Draw, mixed
from octavo.bench.offline.model import Model, complete, params_for
from octavo.bench.stats import ratio_of_medians
from octavo.bench.workload.sample import Sample

AGAINST = "contiguous-max"


@dataclass(frozen=True, slots=True)
class Case:
    """`num_runs`: requests of full length that the memory holds; all of `draw` fit at once.

    `draw(randomness, tokens of a request of full length)`: the requests of a turn.
    """

    name: str
    text: str
    num_runs: int
    draw: Callable[[Draw, int], Iterable[Sample]]


def _one(draw: Draw, length: int) -> list[Sample]:
    return [Sample(draw.tokens(length // 2), length // 2)]


def _equal(draw: Draw, length: int) -> list[Sample]:
    num = length // 4
    return [Sample(draw.tokens(length - num), num) for _ in range(6)]


def _ample(draw: Draw, length: int) -> Iterable[Sample]:
    return mixed(draw, 12)


CASES = (
    Case("one user", "a single request, memory for six", 6, _one),
    Case("equal lengths", "six requests that fill what is reserved for them", 6, _equal),
    Case("ample memory", "twelve requests of mixed lengths, memory for all", 12, _ample),
)

LENGTH = 256
"""Tokens of a request of full length in these cases, if the model takes as many."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Output tokens/s of paged over contiguous in one case: medians, least and greatest ratio."""

    case: str
    text: str
    paged: float
    contiguous: float
    ratio: float
    least: float
    greatest: float

    def as_json(self) -> dict[str, Any]:
        """What --json shows."""
        return {
            "case": self.case,
            "against": AGAINST,
            "paged_output_tokens_per_s": self.paged,
            "contiguous_output_tokens_per_s": self.contiguous,
            "ratio": self.ratio,
            "least": self.least,
            "greatest": self.greatest,
        }


def measure_case(
    case: Case,
    start: Callable[[Mapping[str, Any]], Model],
    turns: int,
    vocab_size: int,
    max_model_len: int,
    block_size: int,
    seed: int,
) -> Overhead:
    """Run one case; `start` makes an engine from changes to the settings."""
    length = min(LENGTH, max_model_len)
    size: dict[str, Any] = {
        "max_model_len": length,
        "num_kv_blocks": case.num_runs * -(-length // block_size),
        "kv_cache_memory_bytes": None,
    }
    names = ("paged", AGAINST)
    engines = {name: start({**ALLOCATORS[name], **size}) for name in names}
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for llm in engines.values():
        complete(llm, [WARM_UP], params_for([WARM_UP]))
    draw = Draw(f"{case.name} {seed}", vocab_size, length)
    for turn in range(turns):
        samples = list(case.draw(draw, length))
        for name in names if turn % 2 else reversed(names):
            speeds[name].append(_speed(engines[name], samples))
    for llm in engines.values():
        llm.close()
    ratio, least, greatest = ratio_of_medians(speeds["paged"], speeds[AGAINST])
    middle = {name: statistics.median(speeds[name]) for name in names}
    return Overhead(case.name, case.text, middle["paged"], middle[AGAINST], ratio, least, greatest)


def _speed(llm: Model, samples: list[Sample]) -> float:
    begin = time.perf_counter()
    complete(llm, samples, params_for(samples))
    return sum(s.output_len for s in samples) / (time.perf_counter() - begin)

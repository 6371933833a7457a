"""What a larger batch can bring on this machine, from the times of the steps that were measured.

    seconds of a decode step = fixed + each · sequences       (fixed: mostly reading the weights)
    seconds of a workload    = prompt tokens · prompt + output tokens · (fixed / batch + each)

A GPU's `fixed` is worth dozens of sequences, so there a batch twice as large is nearly twice as
fast. A CPU's is worth a few: from some batch on it computes, and waits for no memory.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.compare.measure import Run
from octavo.bench.compare.meter import Step

LEAST_PROMPT_STEP = 64
"""Tokens of a step from which on it tells what a prompt token costs."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Seconds: of a step whatever its batch, of each sequence in it, of each prompt token."""

    fixed: float
    each: float
    prompt: float

    @property
    def knee(self) -> float:
        """The batch at which half of a step's time goes into its sequences."""
        return self.fixed / self.each

    def seconds(self, num_prompt: float, num_output: float, batch: float) -> float:
        """Of a workload of so many tokens, at a mean batch."""
        return num_prompt * self.prompt + num_output * (self.fixed / batch + self.each)

    def gain(self, num_prompt: float, num_output: float, batch: float, than: float) -> float:
        """How much faster a mean batch of `batch` is than one of `than`, the same work done."""
        slow, fast = (self.seconds(num_prompt, num_output, b) for b in (than, batch))
        return slow / fast

    def as_json(self) -> dict[str, Any]:
        """What --json shows."""
        return {
            "seconds_per_step": self.fixed,
            "seconds_per_sequence": self.each,
            "seconds_per_prompt_token": self.prompt,
            "knee_batch": self.knee,
        }


def fit(runs: Iterable[Run]) -> Roofline | None:
    """From all steps of all runs; None if their batches are too much alike to tell."""
    by_batch: dict[int, list[float]] = defaultdict(list)
    mixed: list[Step] = []
    for run in runs:
        for step in run.steps:
            if step.num_seqs == step.num_tokens:
                by_batch[step.num_seqs].append(step.seconds)
            else:
                mixed.append(step)
    if len(by_batch) < 2:
        return None
    fixed, each = _line(by_batch)
    if fixed <= 0 or each <= 0:
        return None
    return Roofline(fixed, each, _prompt_token(mixed, fixed, each))


def _line(by_batch: dict[int, list[float]]) -> tuple[float, float]:
    """Least squares through the medians, each weighing as much as it has steps."""
    points = [(n, statistics.median(s), len(s)) for n, s in by_batch.items()]
    weight = sum(w for _, _, w in points)
    mean_n = sum(n * w for n, _, w in points) / weight
    mean_s = sum(s * w for _, s, w in points) / weight
    spread = sum(w * (n - mean_n) ** 2 for n, _, w in points)
    each = sum(w * (n - mean_n) * (s - mean_s) for n, s, w in points) / spread
    return mean_s - each * mean_n, each


def _prompt_token(steps: Sequence[Step], fixed: float, each: float) -> float:
    """Median over steps with many prompt tokens; the sequences that decode beside are taken off.

    About: of a step's sequences all but one are taken to decode.
    """
    found = []
    for step in steps:
        num_prompt = step.num_tokens - step.num_seqs + 1
        if num_prompt >= LEAST_PROMPT_STEP:
            left = step.seconds - fixed - each * (step.num_seqs - 1)
            found.append(max(0.0, left / num_prompt))
    return statistics.median(found) if found else each

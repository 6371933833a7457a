"""Beam search written down naively: whole vocabularies, no blocks, no scheduler.

It keeps `width` slots of running and of finished outputs from the start, as array programs do, and
ranks all continuations of all running ones at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NEVER = -1e9


@dataclass
class Slot:
    tokens: list[int]
    score: float
    is_finished: bool = False


def beam_search(
    scores_after: Callable[[list[int]], list[float]],
    prompt: list[int],
    *,
    width: int,
    max_tokens: int,
    ends: set[int],
    length_penalty: float,
    early_stopping: bool | str,
) -> list[Slot]:
    """The `width` best outputs, best first; `score` is divided by length ** length_penalty."""
    running = [Slot([], 0.0 if i == 0 else NEVER) for i in range(width)]
    best = [Slot([], NEVER) for _ in range(width)]
    for length in range(1, max_tokens + 1):
        every = [
            Slot([*beam.tokens, token], beam.score + score)
            for beam in running
            if beam.score > NEVER / 2
            for token, score in enumerate(scores_after(prompt + beam.tokens))
        ]
        every.sort(key=lambda slot: -slot.score)  # stable: ties by beam, then token
        every = every[: max(2, 1 + len(ends)) * width]
        for slot in every:
            slot.is_finished = slot.tokens[-1] in ends or length == max_tokens
        done = [
            Slot(slot.tokens, slot.score / length**length_penalty, True)
            for slot in every[:width]
            if slot.is_finished
        ]
        best = sorted(best + done, key=lambda slot: -slot.score)[:width]
        running = [slot for slot in every if not slot.is_finished][:width]
        if not running:
            break
        if all(slot.is_finished for slot in best):
            hopeful = length
            if early_stopping == "never" and length_penalty > 0:
                hopeful = max_tokens
            possible = running[0].score / hopeful**length_penalty
            if early_stopping is True or possible <= min(slot.score for slot in best):
                break
    return best

"""Choosing among choices: of `best_of` outputs the `n` likeliest, known when all have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.engine.outputs import TextDelta


class BestOf:
    """Holds a request's deltas back until its last choice has ended."""

    def __init__(self, num_choices: int, n: int) -> None:
        self._deltas: list[list[TextDelta]] = [[] for _ in range(num_choices)]
        self._num_open = num_choices
        self._n = n

    def push(self, delta: TextDelta) -> list[TextDelta]:
        """Nothing, or at last one delta for each of the best choices, renumbered, best first.

        Best is the largest sum of log-probabilities; of equals the one drawn first. Choices that
        failed come last.
        """
        self._deltas[delta.index].append(delta)
        self._num_open -= delta.finish_reason is not None
        if self._num_open:
            return []
        ranked = sorted(map(_whole, self._deltas), key=_rank)[: self._n]
        prompt_logprobs = self._deltas[0][0].prompt_logprobs
        return [
            replace(delta, index=index, prompt_logprobs=None if index else prompt_logprobs)
            for index, delta in enumerate(ranked)
        ]


def _whole(deltas: Sequence[TextDelta]) -> TextDelta:
    """All of one choice, in one delta."""
    return replace(
        deltas[-1],
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(i for delta in deltas for i in delta.token_ids),
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
    )


def _rank(delta: TextDelta) -> tuple[bool, float, int]:
    return (
        delta.finish_reason == "error",
        -sum(entry.logprob for entry in delta.logprobs),
        delta.index,
    )

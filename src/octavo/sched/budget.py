"""What one step may compute: a number of tokens, dearer ones where they attend to many others."""

from __future__ import annotations

from math import ceil, sqrt


class StepBudget:
    """`left`: tokens that the step may still compute.

    `attention_weight`: what attending to one token costs, in passes of a token through the weights:
    with 1 / 3000, a token after 3000 others costs as much as two that have nothing before them. So
    steps take about as long with long contexts as with short ones, and those that wait for them do,
    too. `window`: no token attends to more than so many.
    """

    def __init__(self, num_tokens: int, attention_weight: float, window: int | None) -> None:
        self.left = num_tokens
        self._weight = attention_weight
        self._window = window

    def most(self, start: int, limit: int) -> int:
        """How many tokens from position `start` on cost no more than `limit`; 1 at least.

        The k-th of them attends to start + k tokens, so n cost n (1 + w start) + w n^2 / 2.
        """
        if not self._weight:
            return max(1, limit)
        each = self._cost_of_each(start)
        root = sqrt(each * each + 2 * self._weight * max(0, limit))
        return max(1, int((root - each) / self._weight))

    def spend(self, start: int, num_tokens: int) -> None:
        """`num_tokens` from position `start` on are computed. One alone never costs more than one:
        who has its prompt gets a token in every step."""
        cost: float = num_tokens
        if num_tokens > 1:
            cost *= self._cost_of_each(start) + self._weight * num_tokens / 2
        self.left = max(0, self.left - ceil(cost))

    def _cost_of_each(self, start: int) -> float:
        attended = start if self._window is None else min(start, self._window)
        return 1.0 + self._weight * attended

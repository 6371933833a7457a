"""Guessing the next tokens from the sequence's own text (prompt lookup), without a draft model.

Texts repeat themselves: a summary quotes, an edit copies. If the last few tokens stood somewhere
before, what followed then is a fair guess now. Guesses are computed in one pass with the token that
is due; those that equal what would have been drawn anyway are kept, so the tokens are the same with
and without.

A guess costs a row of arithmetic; it pays if it is right often enough. `num_worthwhile` weighs the
two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

LONGEST = 4
SHORTEST = 2
"""Tokens that must agree before what followed them is a guess."""

ROWS_PER_PASS = 12.0
"""Reading all weights once takes about as long as the arithmetic of so many rows on a CPU."""

PRIOR_RIGHT, PRIOR_WRONG = 1.0, 1.0
MEMORY = 0.9
"""Earlier outcomes fade by this factor with each guess that was tried."""

RETRY_AFTER = 48
"""Tokens after which a sequence whose guesses failed may try one again."""


@dataclass(slots=True)
class PromptLookup:
    """Guesses for one sequence. `_ends` maps the last n tokens to where they last ended."""

    _ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    _num_seen: int = 0
    _right: float = PRIOR_RIGHT
    _wrong: float = PRIOR_WRONG
    _num_tokens_at_last_try: int = 0

    def guess(self, token_ids: list[int], num_most: int, num_running: int) -> tuple[int, ...]:
        """Up to `num_most` tokens that may follow `token_ids`; () if nothing is worth a try."""
        self._read(token_ids)
        num = min(num_most, self.num_worthwhile(num_running))
        if num < 1 and len(token_ids) - self._num_tokens_at_last_try >= RETRY_AFTER:
            num = min(num_most, 1)
        if num < 1:
            return ()
        for n in range(LONGEST, SHORTEST - 1, -1):
            end = self._ends.get(tuple(token_ids[-n:]))
            if end is not None:
                self._num_tokens_at_last_try = len(token_ids)
                return self._continue(token_ids, end, num)
        return ()

    def learn(self, num_right: int, num_wrong: int) -> None:
        """What came of a guess: so many tokens were right; the first wrong one counts once."""
        self._right = self._right * MEMORY + num_right
        self._wrong = self._wrong * MEMORY + min(1, num_wrong)

    def num_worthwhile(self, num_running: int) -> int:
        """The longest guess whose last token is right more often than its row costs.

        With p the share of right guesses, token j of a guess counts with probability p^j. With B
        sequences in the step its row costs 1 / (1 + ROWS_PER_PASS / B) of what a token costs there.
        """
        p = self._right / (self._right + self._wrong)
        cost = 1.0 / (1.0 + ROWS_PER_PASS / num_running)
        return 64 if p > 0.999 else min(64, int(math.log(cost) / math.log(p)))

    def _read(self, token_ids: list[int]) -> None:
        # The very last tokens are not entered yet: nothing has followed them.
        for end in range(self._num_seen, len(token_ids)):
            for n in range(SHORTEST, LONGEST + 1):
                if end >= n:
                    self._ends[tuple(token_ids[end - n : end])] = end
        self._num_seen = max(self._num_seen, len(token_ids))

    def _continue(self, token_ids: list[int], end: int, num: int) -> tuple[int, ...]:
        guess = token_ids[end : end + num]
        while len(guess) < num:  # the match overlaps the end: the text goes round in a circle
            guess += guess[: num - len(guess)]
        return tuple(guess)

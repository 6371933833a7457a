"""Guessing the next tokens from the sequence's own text (prompt lookup), without a draft model.

Texts repeat themselves: a summary quotes, an edit copies. If the last few tokens stood somewhere
before, what followed then is a fair guess now. Guesses are computed in one pass with the token that
is due; those that equal what would have been drawn anyway are kept, so the tokens are the same with
and without.

A guess costs a row of arithmetic; it pays if it is right often enough. How often is learnt from the
sequence itself, apart for each length of match: the longer the match, the better the guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST = 6
SHORTEST = 1
"""Tokens that must agree before what followed them is a guess."""

MOST = 64
"""Longest guess, in tokens."""

ROWS_PER_PASS = 10.0
"""Reading all weights once takes about as long as the arithmetic of so many rows on a CPU."""

MEMORY = 0.95
"""Earlier outcomes fade by this factor with each guess that was tried."""

RETRY_AFTER = 48
"""Tokens after which a sequence whose guesses failed may try one again."""


IDLE_AFTER = 16
"""Tokens without a guess after which there is little hope of one in the next few."""


@dataclass(slots=True)
class _Record:
    """How guesses after a match of one length have fared, counted with fading memory."""

    right: float
    wrong: float

    @property
    def chance(self) -> float:
        return self.right / (self.right + self.wrong)

    def add(self, is_right: bool) -> None:
        self.right = self.right * MEMORY + is_right
        self.wrong = self.wrong * MEMORY + (not is_right)


def _priors() -> dict[int, _Record]:
    """Before anything is known: a match of n tokens is right n times in n + 2."""
    return {n: _Record(right=float(n), wrong=2.0) for n in range(SHORTEST, LONGEST + 1)}


@dataclass(slots=True)
class PromptLookup:
    """Guesses for one sequence. `_ends` maps the last n tokens to where they last ended."""

    _ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    _records: dict[int, _Record] = field(default_factory=_priors)
    _num_seen: int = 0
    _num_matched: int = SHORTEST  # length of the match behind the guess that is out
    _num_tokens_at_last_try: int = 0

    def guess(self, token_ids: list[int], num_most: int, num_running: int) -> tuple[int, ...]:
        """Up to `num_most` tokens that may follow `token_ids`; () if nothing is worth a try.

        `num_running` sequences share the step: the more, the more a row costs.
        """
        self._read(token_ids)
        is_overdue = len(token_ids) - self._num_tokens_at_last_try >= RETRY_AFTER
        for n in range(LONGEST, SHORTEST - 1, -1):
            end = self._ends.get(tuple(token_ids[-n:]))
            if end is None:
                continue
            num = min(num_most, max(self.num_worthwhile(n, num_running), int(is_overdue)))
            if num < 1:
                break  # a shorter match would be the same place, with less to go by
            self._num_tokens_at_last_try = len(token_ids)
            self._num_matched = n
            return _continuation(token_ids, end, num)
        return ()

    def is_idle(self, num_tokens: int) -> bool:
        """True if nothing was guessed for a while; the sequence has `num_tokens` now."""
        return num_tokens - self._num_tokens_at_last_try >= IDLE_AFTER

    def learn(self, num_right: int, num_wrong: int) -> None:
        """What came of the last guess: so many tokens were right, then the next one was not."""
        for i in range(num_right):
            self._record(self._num_matched + i).add(is_right=True)
        if num_wrong:
            self._record(self._num_matched + num_right).add(is_right=False)

    def num_worthwhile(self, num_matched: int, num_running: int) -> int:
        """The longest guess whose last token is right more often than its row costs.

        A token counts only if all before it are right too; each of these makes the match longer.
        With B sequences in the step a row costs 1 / (1 + ROWS_PER_PASS / B) of what a token costs.
        """
        cost = 1.0 / (1.0 + ROWS_PER_PASS / num_running)
        chance, num = 1.0, 0
        while num < MOST:
            chance *= self._record(num_matched + num).chance
            if chance < cost:
                break
            num += 1
        return num

    def _record(self, num_matched: int) -> _Record:
        return self._records[min(num_matched, LONGEST)]

    def _read(self, token_ids: list[int]) -> None:
        # The very last tokens are not entered yet: nothing has followed them.
        for end in range(self._num_seen, len(token_ids)):
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(token_ids[end - n : end])] = end
        self._num_seen = max(self._num_seen, len(token_ids))


def _continuation(token_ids: list[int], end: int, num: int) -> tuple[int, ...]:
    """`num` tokens from `end` on; where the text ends, it is taken to go round in a circle."""
    guess = token_ids[end : end + num]
    while len(guess) < num:
        guess += guess[: num - len(guess)]
    return tuple(guess)

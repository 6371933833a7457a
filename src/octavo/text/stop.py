"""Stop strings in a stream of text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from octavo.errors import RequestError


class StopStrings:
    """Find the first stop string in text that comes piece by piece, and show nothing too early.

    The match that ends first wins; of several that end at the same character, the one that starts
    first, which is the longest. Shown is all text before the match, and the match itself with
    `include_stop_str_in_output`. Text that could still grow into a stop string is held back until
    that is settled (never with `include_stop_str_in_output`: it is shown either way).

    One Knuth-Morris-Pratt automaton per stop string: the cost of a character does not depend on how
    long the text or the strings are. Raises RequestError if a stop string is empty.
    """

    __slots__ = ("_held", "_include", "_matched", "_matchers")

    def __init__(self, stop: Iterable[str], include_stop_str_in_output: bool = False) -> None:
        self._matchers = [_Matcher(s) for s in dict.fromkeys(stop)]
        self._include = include_stop_str_in_output
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that was found, or None so far."""
        return self._matched

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text -> (text that may be shown now, the stop string found or None).

        After a match all further text is dropped, and the match reported again.
        """
        if self._matched is not None or not self._matchers:
            return ("" if self._matched is not None else text), self._matched
        whole = self._held + text
        for at in range(len(self._held), len(whole)):
            char = whole[at]
            found = [m.pattern for m in self._matchers if m.step(char)]
            if found:
                self._matched = max(found, key=len)
                self._held = ""
                end = at + 1 - (0 if self._include else len(self._matched))
                return whole[:end], self._matched
        hold = 0 if self._include else max(m.length for m in self._matchers)
        safe = len(whole) - hold
        self._held = whole[safe:]
        return whole[:safe], None

    def flush(self) -> str:
        """The text ends here: what was held back, since it did not become a stop string."""
        held, self._held = self._held, ""
        for matcher in self._matchers:
            matcher.length = 0
        return held


@lru_cache(maxsize=1024)  # the choices of a request have the same stop strings
def _fallback(pattern: str) -> tuple[int, ...]:
    """Entry k: the longest proper border of the first k characters."""
    fallback = [0] * (len(pattern) + 1)
    border = 0
    for k in range(1, len(pattern)):
        while border and pattern[k] != pattern[border]:
            border = fallback[border]
        border += pattern[k] == pattern[border]
        fallback[k + 1] = border
    return tuple(fallback)


class _Matcher:
    """`length`: how many characters of the pattern the text seen so far ends with."""

    __slots__ = ("_fallback", "length", "pattern")

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str) or not pattern:
            raise RequestError(
                f"stop: expected non-empty strings, got {pattern!r}; leave it out", "stop"
            )
        self.pattern = pattern
        self.length = 0
        self._fallback = _fallback(pattern)

    def step(self, char: str) -> bool:
        """Read one character; True if the pattern ends with it."""
        while self.length and self.pattern[self.length] != char:
            self.length = self._fallback[self.length]
        if self.pattern[self.length] == char:
            self.length += 1
        return self.length == len(self.pattern)

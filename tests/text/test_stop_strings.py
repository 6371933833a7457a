from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.errors import RequestError
from octavo.text.stop import StopStrings

# Two letters, so that stop strings overlap with themselves and with each other.
stops = st.lists(st.text("ab", min_size=1, max_size=6), max_size=3)
pieces = st.lists(st.text("ab", max_size=7), max_size=12)


def naive(text: str, stop: list[str]) -> tuple[int, str] | None:
    """(end, stop string) of the match that ends first, the longest of those."""
    for end in range(1, len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            return end, max(found, key=len)
    return None


@settings(deadline=None, max_examples=500)
@given(stops, pieces, st.booleans())
@example(["aab"], ["aaab"], False)
@example(["ababaa"], ["abab", "abaa"], False)
def test_shows_exactly_what_a_search_over_the_whole_text_would(
    stop: list[str], pieces: list[str], include: bool
) -> None:
    matcher = StopStrings(stop, include_stop_str_in_output=include)
    shown, matched = "", None
    for piece in pieces:
        safe, matched = matcher.push(piece)
        shown += safe
        if matched is not None:
            break
    shown += matcher.flush()
    text = "".join(pieces)
    expected = naive(text, stop)
    if expected is None:
        assert (shown, matched) == (text, None)
    else:
        end, found = expected
        assert (shown, matched) == (text[: end if include else end - len(found)], found)


@settings(deadline=None)
@given(stops, pieces)
def test_holds_back_the_longest_possible_beginning_and_no_more(
    stop: list[str], pieces: list[str]
) -> None:
    matcher = StopStrings(stop)
    shown = text = ""
    for piece in pieces:
        safe, matched = matcher.push(piece)
        if matched is not None:
            return
        shown += safe
        text += piece
        beginnings = [s[:k] for s in stop for k in range(1, len(s)) if text.endswith(s[:k])]
        assert len(text) - len(shown) == max(map(len, beginnings), default=0)


def test_a_match_that_ends_first_wins_then_the_longest() -> None:
    assert StopStrings(["bcd", "c"]).push("abcd") == ("ab", "c")
    assert StopStrings(["c", "abc"]).push("xabcx") == ("x", "abc")


def test_nothing_is_held_back_when_the_stop_string_is_shown_anyway() -> None:
    matcher = StopStrings(["STOP"], include_stop_str_in_output=True)
    assert matcher.push("x ST") == ("x ST", None)
    assert matcher.push("OP y") == ("OP", "STOP")


def test_after_a_match_the_rest_is_dropped() -> None:
    matcher = StopStrings(["b"])
    assert matcher.push("ab") == ("a", "b")
    assert matcher.push("c") == ("", "b")
    assert matcher.flush() == ""
    assert matcher.matched == "b"


def test_after_flush_a_new_text_begins() -> None:
    matcher = StopStrings(["ab"])
    assert matcher.push("xa") == ("x", None)
    assert matcher.flush() == "a"
    assert matcher.push("b") == ("b", None)


def test_without_stop_strings_all_text_passes() -> None:
    assert StopStrings([]).push("abc") == ("abc", None)


@pytest.mark.parametrize("stop", [[""], ["a", ""], [None]])
def test_an_empty_stop_string_is_refused(stop: list[str]) -> None:
    with pytest.raises(RequestError, match="non-empty") as error:
        StopStrings(stop)
    assert error.value.param == "stop"

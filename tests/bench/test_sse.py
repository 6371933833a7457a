from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.http.sse import SSEParser


def parse(text: bytes) -> list[bytes]:
    return SSEParser().feed(text)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends(end: bytes) -> None:
    assert parse(b"data: a" + end + b"data: b" + end * 2 + b"data: c" + end * 2) == [b"a\nb", b"c"]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data:x\n\n", [b"x"]),
        (b"data:  x\n\n", [b" x"]),  # one space is the separator's
        (b"data\n\n", [b""]),
        (b": a comment\n\n", []),
        (b"event: ping\nid: 3\nretry: 5\n\n", []),
        (b"event: m\ndata: 1\n: c\ndata: 2\n\n\n\n", [b"1\n2"]),
        (b"datum: x\n\n", []),
        (b"data: unfinished", []),
        (b"data: unfinished\n", []),
        (b"\xef\xbb\xbfdata: x\n\n", [b"x"]),
        ('data: {"t": "é: €"}\n\n'.encode(), ['{"t": "é: €"}'.encode()]),
    ],
)
def test_fields(text: bytes, events: list[bytes]) -> None:
    assert parse(text) == events


@given(
    st.lists(st.sampled_from([b"data: a", b"data:b", b"", b": c", b"x: y", "data: é€".encode()])),
    st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=1),
    st.lists(st.integers(0, 200)),
    st.booleans(),
)
def test_pieces_do_not_matter(
    lines: list[bytes], ends: list[bytes], cuts: list[int], bom: bool
) -> None:
    text = b"\xef\xbb\xbf" * bom
    text += b"".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    whole = parse(text)
    edges = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    parser = SSEParser()
    found = []
    for begin, end in itertools.pairwise(edges):
        found += parser.feed(text[begin:end])
    assert found == whole
    one = SSEParser()
    assert [e for i in range(len(text)) for e in one.feed(text[i : i + 1])] == whole

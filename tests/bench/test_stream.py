"""Events of a response -> times and lengths."""

from __future__ import annotations

import json
from typing import Any

from octavo.bench.serve.stream import Stream


def event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(piece: str, finish: str | None = None) -> bytes:
    return event({"id": "x", "choices": [{"index": 0, "text": piece, "finish_reason": finish}]})


def delta(finish: str | None = None, **fields: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}
END = event({"choices": [], "usage": USAGE}) + b"data: [DONE]\n\n"


def feed(*pieces: tuple[float, bytes]) -> Stream:
    stream = Stream(10.0)
    for now, piece in pieces:
        stream.feed(piece, now)
    return stream


def test_a_completion() -> None:
    out = feed((10.5, text("a")), (10.7, text("")), (11.0, text("bc", "length")), (11.5, END)).end(
        12
    )
    assert out.error is None
    assert (out.ttft, out.latency) == (0.5, 1.0)  # the last token, not the end of the stream
    assert [round(x, 6) for x in out.itl] == [0.2, 0.3]
    assert (out.text, out.prompt_len, out.output_len, out.num_cached) == ("abc", 7, 5, 3)
    assert out.tpot == 0.5 / 4


def test_two_chunks_in_one_piece_and_one_in_two() -> None:
    whole = text("b")
    out = feed(
        (10.5, text("a") + whole[:9]), (11.0, whole[9:]), (11.0, text("", "stop") + END)
    ).end(12)
    assert (out.ttft, out.itl, out.error) == (0.5, [0.5], None)


def test_a_chat_begins_with_the_first_word_not_with_the_role() -> None:
    out = feed(
        (10.1, delta(role="assistant", content="")),
        (10.4, delta(content="a")),
        (10.5, delta(reasoning_content="b")),
        (10.6, delta("stop") + b"data: [DONE]\n\n"),
    ).end(11)
    assert (round(out.ttft, 6), round(out.latency, 6), out.output_len) == (0.4, 0.5, 2)
    assert out.text == "a"


def test_one_token_without_text() -> None:
    out = feed((10.5, text("", "length")), (10.6, END)).end(11)
    assert (out.ttft, out.latency, out.itl, out.error) == (0.5, 0.5, [], None)


def test_failures() -> None:
    broken = feed((10.5, text("a"))).end(11)
    assert broken.error == "the stream ended before its last event"
    error = {"error": {"message": "logits that are not numbers", "code": 500}}
    assert feed((10.5, text("a") + event(error))).end(11).error == "logits that are not numbers"
    assert feed((10.5, event({"error": "x"}))).end(11).error == "x"
    assert "not a completion chunk" in (feed((10.5, b"data: {oops\n\n")).end(11).error or "")
    assert feed((10.5, b"data: [DONE]\n\n")).end(11).error == "the stream held no token"
    assert feed().end(11).error == "the stream ended before its last event"

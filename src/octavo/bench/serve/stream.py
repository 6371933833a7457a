"""The chunks of a streamed completion -> an Outcome."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.bench.http.sse import SSEParser
from octavo.bench.serve.outcome import Outcome


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    """The fields that are needed; others may be there."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


class Stream:
    """Takes in the events of one response; `outcome.started` is set by the sender."""

    def __init__(self, started: float) -> None:
        self.outcome = Outcome(started=started)
        self._events = SSEParser()
        self._last = started
        self._num_chunks = 0
        self._counted: int | None = None
        self._seen_any: float | None = None
        self._is_finished = False

    def feed(self, piece: bytes, now: float) -> None:
        """Bytes of the body that arrived at `now`."""
        for data in self._events.feed(piece):
            if data == b"[DONE]":
                self._is_finished = True
                continue
            try:
                chunk = _DECODER.decode(data)
            except msgspec.DecodeError as error:
                self._fail(f"not a completion chunk ({error}): {data[:200]!r}")
                continue
            self._take(chunk, now)

    def _take(self, chunk: _Chunk, now: float) -> None:
        if chunk.error is not None:
            self._fail(error_text(chunk.error))
            return
        out = self.outcome
        if chunk.usage is not None:
            out.prompt_len = chunk.usage.prompt_tokens or 0
            self._counted = chunk.usage.completion_tokens
            details = chunk.usage.prompt_tokens_details
            out.num_cached = None if details is None else details.cached_tokens
        for choice in chunk.choices[:1]:
            self._seen_any = now
            if choice.finish_reason is not None:
                self._is_finished = True
            if not self._is_token(choice):
                continue
            if self._num_chunks == 0:
                out.ttft = now - out.started
            else:
                out.itl.append(now - self._last)
            self._last = now
            self._num_chunks += 1

    def _is_token(self, choice: _Choice) -> bool:
        """A chunk that brings a token. In completions that may be one with no printable text
        yet."""
        delta = choice.delta
        if delta is not None:
            self.outcome.text += delta.content or ""
            return bool(delta.content or delta.reasoning_content)
        self.outcome.text += choice.text or ""
        return bool(choice.text) or choice.finish_reason is None

    def _fail(self, error: str) -> None:
        self.outcome.error = self.outcome.error or error[:500]

    def end(self, now: float) -> Outcome:
        """The response is complete."""
        out = self.outcome
        if self._num_chunks == 0 and self._seen_any is not None:
            out.ttft = self._seen_any - out.started  # all its tokens were without text
            self._last = self._seen_any
        out.latency = self._last - out.started
        out.output_len = self._num_chunks if self._counted is None else self._counted
        if not self._is_finished:
            self._fail("the stream ended before its last event")
        elif self._seen_any is None:
            self._fail("the stream held no token")
        return out


def error_text(error: Any) -> str:
    """The message of an error object as OpenAI's API has it, else all of it."""
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else str(error)

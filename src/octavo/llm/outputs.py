"""What the offline API gives back. Names as in vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.engine.outputs import TextDelta
from octavo.engine.stats import RequestTimes
from octavo.request import TokenLogprob
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token's log-probability. `rank` from 1; None if it is not among the alternatives asked for."""

    logprob: float
    rank: int | None
    decoded_token: str


PositionLogprobs = dict[int, Logprob]
"""token id -> its entry, at one position: the chosen token and the alternatives asked for."""


@dataclass(slots=True)
class CompletionOutput:
    """One choice. `finish_reason`: stop, length, abort or error (then `error` says why).

    `logprobs` has an entry per token, or is None if none were asked for.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None


@dataclass(slots=True)
class RequestOutput:
    """One prompt and its choices. `prompt` is None if it was given as token ids.

    `prompt_logprobs` has an entry per prompt token, the first None. `num_cached_tokens`: prompt tokens whose
    keys and values were found in the prefix cache. `metrics`: times in seconds of a monotonic clock.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    num_cached_tokens: int = 0
    metrics: RequestTimes | None = None
    finished: bool = False

    def add(self, delta: TextDelta, wants_logprobs: bool, tokenizer: Tokenizer) -> None:
        """Take in what came for one of the choices."""
        out = self.outputs[delta.index]
        self.request_id = delta.request_id
        out.text += delta.text
        out.token_ids += delta.token_ids
        if wants_logprobs:
            out.logprobs = (out.logprobs or []) + [position(e, tokenizer) for e in delta.logprobs]
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = [
                None if e is None else position(e, tokenizer) for e in delta.prompt_logprobs
            ]
        self.num_cached_tokens = max(self.num_cached_tokens, delta.num_cached_tokens)
        if delta.finish_reason is not None:
            out.finish_reason = delta.finish_reason
            out.stop_reason = delta.stop_reason
            out.error = delta.error
            self.finished = all(o.finish_reason is not None for o in self.outputs)


def new_output(prompt: str | None, token_ids: Sequence[int], num_choices: int) -> RequestOutput:
    """An output to be filled."""
    outputs = [CompletionOutput(index=i) for i in range(num_choices)]
    return RequestOutput("", prompt, list(token_ids), outputs)


def position(entry: TokenLogprob, tokenizer: Tokenizer) -> PositionLogprobs:
    """The engine's entry for one position, as a map."""
    ranks = {token_id: i + 1 for i, (token_id, _) in enumerate(entry.top)}
    pairs = {entry.token_id: entry.logprob, **dict(entry.top)}
    return {
        token_id: Logprob(value, ranks.get(token_id), tokenizer.token_text(token_id))
        for token_id, value in pairs.items()
    }

"""What the offline API gives back. Names as in vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.engine.outputs import TextDelta
from octavo.engine.stats import RequestTimes
from octavo.request import SamplingParams, TokenLogprob


@dataclass(slots=True)
class CompletionOutput:
    """One choice. `finish_reason`: stop, length, abort or error (then `error` says why).

    `logprobs` has an entry per token, or is None if none were asked for.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum of the tokens' log-probabilities, if they were asked for."""
        return None if self.logprobs is None else sum(entry.logprob for entry in self.logprobs)


@dataclass(slots=True)
class RequestOutput:
    """One prompt and its choices. `prompt` is None if it was given as token ids.

    `prompt_logprobs` has an entry per prompt token, the first None. `num_cached_tokens`: prompt
    tokens whose keys and values were found in the prefix cache. `metrics`: times in seconds of a
    monotonic clock, not shown by `repr`.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprob | None] | None = None
    num_cached_tokens: int = 0
    metrics: RequestTimes | None = field(default=None, repr=False)
    finished: bool = False

    def add(self, delta: TextDelta) -> None:
        """Take in what came for one of the choices."""
        out = self.outputs[delta.index]
        self.request_id = delta.request_id
        out.text += delta.text
        out.token_ids += delta.token_ids
        if out.logprobs is not None:
            out.logprobs += delta.logprobs
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = list(delta.prompt_logprobs)
        self.num_cached_tokens = max(self.num_cached_tokens, delta.num_cached_tokens)
        if delta.finish_reason is not None:
            out.finish_reason = delta.finish_reason
            out.stop_reason = delta.stop_reason
            out.error = delta.error
            self.finished = all(o.finish_reason is not None for o in self.outputs)


def new_output(
    prompt: str | None, token_ids: Sequence[int], params: SamplingParams
) -> RequestOutput:
    """An output to be filled."""
    outputs = [
        CompletionOutput(i, logprobs=None if params.logprobs is None else [])
        for i in range(params.n)
    ]
    return RequestOutput("", prompt, list(token_ids), outputs)

"""A request's fields -> SamplingParams for the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.errors import RequestError
from octavo.request import SamplingParams
from octavo.server.requests import ChatCompletionRequest, CompletionRequest

_DIRECT = (
    "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop_token_ids",
    "include_stop_str_in_output", "ignore_eos", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "skip_special_tokens", "best_of", "use_beam_search", "beam_width",
    "length_penalty", "early_stopping",
)  # fmt: skip
_NO_SAMPLING = SamplingParams()
DEFAULT_COMPLETION_TOKENS = 16


def completion_params(body: CompletionRequest, base: SamplingParams, vocab: int) -> SamplingParams:
    """Parameters of a completion; max_tokens 0 scores the prompt and makes nothing."""
    given = _given(body, vocab)
    tokens = _max_tokens(body)
    if tokens == 0 and not body.echo:
        raise RequestError(
            "`max_tokens`: expected at least 1 (0 only with echo), got 0", "max_tokens"
        )
    given["max_tokens"] = DEFAULT_COMPLETION_TOKENS if tokens is None else tokens
    if body.logprobs is not None:
        given["logprobs"] = body.logprobs
        given["prompt_logprobs"] = body.logprobs if body.echo else None
    return _params(body, base, given)


def chat_params(body: ChatCompletionRequest, base: SamplingParams, vocab: int) -> SamplingParams:
    """Parameters of a chat completion; without max_tokens it may fill the context."""
    given = _given(body, vocab)
    given["max_tokens"] = _max_tokens(body)
    if given["max_tokens"] == 0:
        raise RequestError("`max_tokens`: expected at least 1, got 0", "max_tokens")
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError(
            f"`top_logprobs`: expected `logprobs`: true beside it, got top_logprobs="
            f"{body.top_logprobs} alone",
            "top_logprobs",
        )
    if body.logprobs:
        given["logprobs"] = body.top_logprobs or 0
    return _params(body, base, given)


def _params(
    body: CompletionRequest | ChatCompletionRequest, base: SamplingParams, given: dict[str, Any]
) -> SamplingParams:
    """`given` over `base`, which is about sampling: beam search has nothing of that."""
    params = replace(_NO_SAMPLING if body.use_beam_search else base, **given)
    if body.stream and params.num_choices > params.n:
        raise RequestError(
            f"`best_of`: expected n ({params.n}) with `stream`, got {params.best_of}; which are "
            "the best is known at the end: leave `stream` out",
            "best_of",
        )
    return params


def _given(body: CompletionRequest | ChatCompletionRequest, vocab: int) -> dict[str, Any]:
    given = {k: v for k in _DIRECT if (v := getattr(body, k)) is not None}
    if body.stop:
        given["stop"] = body.stop
    if body.logit_bias:
        worst = body.logit_bias[-1][0]
        if worst >= vocab:
            raise RequestError(
                f"`logit_bias`: expected token ids below {vocab} (the vocabulary), got {worst}",
                "logit_bias",
            )
        given["logit_bias"] = body.logit_bias
    worst = max(body.stop_token_ids or (), default=0)
    if worst >= vocab:
        raise RequestError(
            f"`stop_token_ids`: expected token ids below {vocab} (the vocabulary), got {worst}",
            "stop_token_ids",
        )
    if body.stream_options is not None and not body.stream:
        raise RequestError(
            "`stream_options`: expected `stream`: true beside it, got it alone", "stream_options"
        )
    return given


def _max_tokens(body: CompletionRequest | ChatCompletionRequest) -> int | None:
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestError(
            f"`max_completion_tokens`: expected one of max_tokens and max_completion_tokens, "
            f"got {old} and {new}",
            "max_completion_tokens",
        )
    return new if old is None else old

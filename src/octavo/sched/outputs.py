"""What the scheduler hands on after a step: new tokens per choice, and how it ended if it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.request import TokenLogprob

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(slots=True)  # not frozen: see sched/plan.py
class SeqOutput:
    """New tokens of choice `index` of a request after one step.

    `logprobs` has one entry per token id. `stop_reason` is the stop token's id if one ended it.
    `num_cached_tokens`: prompt tokens found in the prefix cache. `prompt_logprobs` comes once, with
    the first output of choice 0, one entry per prompt token, the first None.
    """

    request_id: str
    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    num_cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    error: str | None = None

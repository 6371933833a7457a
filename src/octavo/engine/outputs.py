"""What leaves the engine, per choice, in text. (In token ids, per step: sched/outputs.py.)"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.request import TokenLogprob
from octavo.sched.outputs import FinishReason, SeqOutput

__all__ = ["FinishReason", "SeqOutput", "TextDelta"]


@dataclass(slots=True)  # not frozen: see sched/plan.py
class TextDelta:
    """New output of choice `index`.

    `text` is what may be shown now (text that could still become a stop string or an unfinished
    character is held back), `token_ids` and `logprobs` what it came from. A choice ends with
    exactly one delta whose `finish_reason` is set; `stop_reason` is the stop string or stop token
    that ended it. `prompt_logprobs` comes once, with the first delta of choice 0.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    error: str | None = None

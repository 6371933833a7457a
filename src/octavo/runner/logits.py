"""What a request changes in its logits before a token is chosen: biases, bans, penalties."""

from __future__ import annotations

import numpy as np

from octavo.errors import SequenceError
from octavo.ops.base import F32
from octavo.sched.plan import SampleRequest


def is_plain(sample: SampleRequest) -> bool:
    """True if `adjust` would change nothing."""
    params = sample.params
    return not (params.logit_bias or sample.banned_token_ids or params.needs_history)


def adjust(row: F32, sample: SampleRequest) -> F32:
    """A changed copy of the logits `row` [V]: logit_bias, then bans, then penalties.

    Raises SequenceError for a token id outside the vocabulary.
    """
    x = row.copy()
    params = sample.params
    if params.logit_bias:
        ids = _ids([i for i, _ in params.logit_bias], len(x), "logit_bias")
        np.add.at(x, ids, np.array([b for _, b in params.logit_bias], dtype=np.float32))
    if sample.banned_token_ids:
        # Stop tokens come from the caller: one that the vocabulary lacks cannot be drawn anyway.
        x[[i for i in sample.banned_token_ids if 0 <= i < len(x)]] = -np.inf
    if params.needs_history:
        _penalise(x, sample)
    return x


def _penalise(x: F32, sample: SampleRequest) -> None:
    """Apply the penalties to `x` in place, as the OpenAI API (additive) and CTRL (repetition)
    define them."""
    params = sample.params
    history = _ids(sample.history, len(x), "history")
    if params.repetition_penalty != 1.0:
        seen = np.unique(history)
        factor = np.float32(params.repetition_penalty)
        values = x[seen]
        x[seen] = np.where(values > 0, values / factor, values * factor)
    if params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
        used, counts = np.unique(history[sample.num_prompt_tokens :], return_counts=True)
        x[used] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
        x[used] -= np.float32(params.presence_penalty)


def _ids(
    token_ids: list[int] | tuple[int, ...], vocab_size: int, what: str
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    ids = np.fromiter(token_ids, np.int64, len(token_ids))
    if len(ids) and not (ids.min() >= 0 and ids.max() < vocab_size):
        wrong = next(i for i in token_ids if not 0 <= i < vocab_size)
        raise SequenceError(
            f"{what}: expected token ids from 0 to {vocab_size - 1} (the vocabulary), got {wrong}"
        )
    return ids

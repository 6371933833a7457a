"""Log-probabilities of a row of logits: log-softmax of what the model gave, before temperature,
biases and penalties (vLLM's `raw_logprobs`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from octavo.errors import SequenceError
from octavo.ops.base import F32
from octavo.request import TokenLogprob
from octavo.runner.filters import largest


def check_row(best: float) -> None:
    """Raise SequenceError unless `best`, the largest logit of a row (NaN if it holds one), is
    finite."""
    if not math.isfinite(best):
        raise SequenceError(
            f"the model gave logits that are not numbers (largest: {best}); its weights or the"
            " values of this sequence overflow"
        )


def log_sum_exp(row: F32) -> float:
    """What to subtract from logits `row` [V] to have log-probabilities; see `check_row`."""
    best = row.max()
    check_row(float(best))
    with np.errstate(over="ignore", under="ignore"):  # down to minus infinity and zero
        total = float(np.exp(row - best).sum(dtype=np.float64))
    return float(best) + math.log(total)


def token_logprob(row: F32, token_id: int, num_top: int) -> TokenLogprob:
    """`token_id`'s entry from logits `row` [V], with the `num_top` likeliest, ties by lowest id.

    Raises SequenceError for logits that are not numbers. A function of the row alone: sums run over
    one contiguous row in one order.
    """
    log_sum = log_sum_exp(row)
    top: tuple[tuple[int, float], ...] = ()
    if num_top:
        ids = largest(row, num_top)
        values = row[ids]
        order = np.argsort(-values, kind="stable")
        pairs = zip(ids[order].tolist(), values[order].tolist(), strict=True)
        top = tuple((i, v - log_sum) for i, v in pairs)
    return TokenLogprob(token_id, float(row[token_id]) - log_sum, top)


def prompt_logprobs(rows: F32, next_token_ids: Sequence[int], num_top: int) -> list[TokenLogprob]:
    """One entry for each row of `rows` [n, V] and the token that follows it."""
    pairs = zip(rows, next_token_ids, strict=True)
    return [token_logprob(row, token_id, num_top) for row, token_id in pairs]

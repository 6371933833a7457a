"""What may follow a beam: the likeliest tokens of a row of logits, and how likely they are."""

from __future__ import annotations

import numpy as np

from octavo.errors import SequenceError
from octavo.ops.base import F32
from octavo.runner.filters import largest
from octavo.runner.logits import adjust, is_plain
from octavo.runner.logprobs import log_sum_exp
from octavo.sched.plan import Candidates, SampleRequest


def candidates(row: F32, request: SampleRequest) -> Candidates:
    """The `num_candidates` likeliest tokens after logits `row` [V]: a function of the row alone.

    Biases, bans and penalties apply to log-probabilities here, as scores are sums of these. Raises
    SequenceError for logits that are not numbers, or if nothing may follow.
    """
    log_sum = log_sum_exp(row)
    if is_plain(request):
        ids = _best_first(row, request.num_candidates)
        scores = logprobs = [float(x) - log_sum for x in row[ids]]
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            x = adjust(row - np.float32(log_sum), request)
        ids = [i for i in _best_first(x, request.num_candidates) if x[i] > -np.inf]
        if not ids or not np.isfinite(x[ids]).all():
            raise SequenceError(
                "no token may follow: logit_bias, min_tokens and penalties rule out the whole"
                " vocabulary, or take the scores beyond float32"
            )
        scores = x[ids].tolist()
        logprobs = [float(v) - log_sum for v in row[ids]]
    top: tuple[tuple[int, float], ...] = ()
    if request.params.logprobs:
        best = _best_first(row, request.params.logprobs)
        top = tuple((i, float(row[i]) - log_sum) for i in best)
    return Candidates(tuple(ids), tuple(scores), tuple(logprobs), top)


def _best_first(x: F32, count: int) -> list[int]:
    """Indices of the `count` largest, ties by lowest index."""
    ids = largest(x, count)
    ordered: list[int] = ids[np.argsort(-x[ids], kind="stable")].tolist()
    return ordered

"""From logits to tokens.

A token is a function of its row of logits, the request's parameters, seed, choice index and
position, and of nothing else: every row is worked on alone, and the random number comes by counter.
Order: logit_bias, bans (min_tokens), penalties; greedy if the temperature is 0; else temperature,
min_p, top_k, top_p and one draw.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from octavo.errors import SequenceError
from octavo.ops.base import F32, Ops
from octavo.request import SamplingParams, TokenLogprob
from octavo.runner.beams import candidates
from octavo.runner.filters import draw, kept
from octavo.runner.logits import adjust, is_plain
from octavo.runner.logprobs import check_row, token_logprob
from octavo.runner.uniform import uniform
from octavo.sched.plan import SampleRequest, StepResult

Draw = tuple[int, int, SampleRequest]
"""A row of logits, the position in its sequence at which the token drawn from it will stand, and
what is wanted there."""


def sample(ops: Ops, logits: F32, draws: Iterable[Draw], result: StepResult) -> None:
    """Draw a token for each of `draws` from its row of `logits` [R, V] into `result`.

    A sequence whose logits are not numbers, or that may draw nothing, lands in `result.failed`; the
    others go on. `TokenLogprob.logprob` is 0.0 where the request asked for no log-probabilities.
    """
    best = ops.argmax(logits)
    for row, position, request in draws:
        if request.takes_best and best[row] >= 0:
            token = TokenLogprob(best[row], 0.0)
        else:
            try:
                if request.num_candidates:
                    result.candidates[request.seq_id] = candidates(logits[row], request)
                    continue
                token = _sample_row(logits[row], best[row], position, request)
            except SequenceError as error:
                result.failed[request.seq_id] = str(error)
                continue
        result.sampled.setdefault(request.seq_id, []).append(token)


# Overflow to infinity is checked for, and means "never" on the way down.
@np.errstate(over="ignore", invalid="ignore", under="ignore")
def _sample_row(row: F32, best: int, position: int, request: SampleRequest) -> TokenLogprob:
    if best < 0:
        check_row(float(row.max()))
    params = request.params
    x = row
    if not is_plain(request):
        x = adjust(row, request)
        best = int(x.argmax())
        _check_adjusted(float(x[best]))
    token_id = best
    if not params.is_greedy:
        if params.seed is None:
            raise ValueError(f"{request.seq_id}: expected a settled seed, got None")
        token_id = _draw(x, x[best], params, uniform(params.seed, request.index, position))
    if params.logprobs is None:
        return TokenLogprob(token_id, 0.0)
    return token_logprob(row, token_id, params.logprobs)


def _check_adjusted(best: float) -> None:
    """Raise SequenceError unless `best`, the largest logit after `adjust`, can be drawn."""
    if best == -np.inf:
        raise SequenceError(
            "no token may be drawn: logit_bias and min_tokens rule out the whole vocabulary"
        )
    if not np.isfinite(best):
        raise SequenceError(
            "penalties or logit_bias take the logits beyond float32; bring them nearer to their"
            " neutral values"
        )


def _draw(x: F32, best: np.float32, params: SamplingParams, u: float) -> int:
    """One token from the softmax of x [V] / temperature after the filters, u in [0, 1)."""
    weights = np.subtract(x, best)
    if params.temperature != 1.0:
        weights /= np.float32(params.temperature)
    np.exp(weights, out=weights)
    ids = kept(x, weights, params)
    if ids is None:
        return draw(weights, u)
    return int(ids[draw(weights[ids], u)])

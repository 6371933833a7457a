"""The sampler's rules again, as plainly as they can be said: one Python loop each, no shortcuts."""

from __future__ import annotations

import math
from collections import Counter

from octavo.ops.reference import ReferenceOps
from octavo.request import SamplingParams
from octavo.sched.plan import SampleRequest

OPS = ReferenceOps()


def request(**kw: object) -> SampleRequest:
    """A SampleRequest; unknown keywords are sampling parameters, `seed` defaults to 0."""
    own = {"seq_id", "index", "num_prompt_tokens", "history", "banned_token_ids", "num_candidates"}
    fields = {"seq_id": "s", "index": 0, "num_prompt_tokens": 3}
    params = {"seed": 0}
    for name, value in kw.items():
        (fields if name in own else params)[name] = value
    return SampleRequest(params=SamplingParams(**params), **fields)  # type: ignore[arg-type]


def adjusted(row: list[float], sample: SampleRequest) -> list[float]:
    x, p = list(row), sample.params
    for token_id, bias in p.logit_bias:
        x[token_id] += bias
    for token_id in sample.banned_token_ids:
        x[token_id] = -math.inf
    if p.needs_history:
        for token_id in set(sample.history):
            v = x[token_id]
            x[token_id] = v / p.repetition_penalty if v > 0 else v * p.repetition_penalty
        for token_id, count in Counter(sample.history[sample.num_prompt_tokens :]).items():
            x[token_id] -= p.frequency_penalty * count + p.presence_penalty
    return x


def allowed(x: list[float], p: SamplingParams) -> dict[int, float]:
    """token id -> probability, of the tokens that may be drawn."""
    best = max(x)
    weights = {i: math.exp((v - best) / p.temperature) for i, v in enumerate(x)}
    if p.min_p > 0:
        weights = {i: w for i, w in weights.items() if w >= p.min_p}
    ranked = sorted(weights, key=lambda i: (-x[i], i))
    if p.top_k > 0:
        ranked = ranked[: p.top_k]
    total = sum(weights[i] for i in ranked)
    chosen, mass = [], 0.0
    for i in ranked:
        chosen.append(i)
        mass += weights[i]
        if mass >= p.top_p * total:
            break
    total = sum(weights[i] for i in chosen)
    return {i: weights[i] / total for i in chosen}

"""What may follow a beam, against the plain rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.runner.sampler import sample
from octavo.sched.plan import StepResult
from tests.runner.naive import OPS, adjusted, request

V = 12
# Few values, so that there are ties.
rows = st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1.0, 4.0]), min_size=V, max_size=V)
changes = st.fixed_dictionaries(
    {"num_candidates": st.integers(1, V + 3), "logprobs": st.sampled_from([None, 0, 3])},
    optional={
        "logit_bias": st.dictionaries(st.integers(0, V - 1), st.floats(-20, 20), max_size=3),
        "banned_token_ids": st.lists(st.integers(0, V - 1), max_size=4).map(tuple),
        "presence_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.5, 2),
        "history": st.lists(st.integers(0, V - 1), min_size=3, max_size=20).map(tuple),
    },
)


def run(row, wanted) -> StepResult:
    result = StepResult()
    sample(OPS, np.array([row], dtype=np.float32), [(0, 3, wanted)], result)
    assert not result.sampled
    return result


@given(rows, changes)
def test_the_likeliest_come_first_ties_by_lowest_id(row, kw):
    wanted = request(n=2, use_beam_search=True, **kw)
    got = run(row, wanted).candidates["s"]
    total = math.log(sum(math.exp(x) for x in row))
    logprobs = [x - total for x in row]
    scores = adjusted(logprobs, wanted)
    allowed = sum(x > -math.inf for x in scores)
    assert len(got.token_ids) == min(wanted.num_candidates, allowed)
    assert got.scores == pytest.approx([scores[i] for i in got.token_ids], abs=1e-5)
    assert got.logprobs == pytest.approx([logprobs[i] for i in got.token_ids], abs=1e-5)
    assert all(
        a > b or (a == b and i < j)
        for (a, i), (b, j) in zip(
            zip(got.scores, got.token_ids, strict=True),
            zip(got.scores[1:], got.token_ids[1:], strict=True),
            strict=False,
        )
    )
    rest = set(range(V)) - set(got.token_ids)
    assert all(scores[i] <= got.scores[-1] + 1e-5 for i in rest)
    best = sorted(range(V), key=lambda i: (-row[i], i))[: wanted.params.logprobs or 0]
    assert [i for i, _ in got.top] == best


def test_what_cannot_go_on_fails_alone():
    everything = tuple(range(V))
    banned = request(use_beam_search=True, num_candidates=3, banned_token_ids=everything)
    assert "no token may follow" in run([0.0] * V, banned).failed["s"]
    plain = request(use_beam_search=True, num_candidates=3)
    assert "not numbers" in run([math.nan] * V, plain).failed["s"]

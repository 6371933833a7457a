from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.runner.logits import adjust
from octavo.runner.sampler import sample
from octavo.sched.plan import StepResult
from tests.runner.naive import OPS, adjusted, allowed, request

V = 12
rows = st.lists(st.floats(-6, 6, width=32), min_size=V, max_size=V)
params = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.2, 1.0, 1.7]),
        "top_p": st.sampled_from([0.05, 0.5, 0.93]),
        "top_k": st.integers(-1, V + 3),
        "min_p": st.sampled_from([0.0, 0.1, 0.6]),
        "logit_bias": st.dictionaries(st.integers(0, V - 1), st.floats(-20, 20), max_size=3),
        "banned_token_ids": st.lists(st.integers(0, V - 1), max_size=4).map(tuple),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.5, 2),
        "history": st.lists(st.integers(0, V - 1), min_size=3, max_size=20).map(tuple),
    },
)


def one(row, sampled, position=3) -> int:
    result = StepResult()
    sample(OPS, np.array([row], dtype=np.float32), [(0, position, sampled)], result)
    assert not result.failed
    return result.sampled[sampled.seq_id][0].token_id


@given(rows, params)
def test_adjustments_agree_with_the_plain_rules(row, kw):
    wanted = request(**kw)
    got = adjust(np.array(row, dtype=np.float32), wanted)
    np.testing.assert_allclose(got, adjusted(row, wanted), rtol=2e-6, atol=2e-6)


@settings(max_examples=60)
@given(rows, params, st.integers(0, 2**63 - 1))
def test_only_allowed_tokens_are_drawn(row, kw, seed):
    wanted = request(seed=seed, **kw)
    x = adjusted(row, wanted)
    best = max(x)
    # A hair wider than the rule, for borders that float32 and float64 see differently.
    near = {
        i for i, v in enumerate(x) if any(abs(v - x[j]) < 1e-4 for j in allowed(x, wanted.params))
    }
    for position in range(10):
        drawn = one(row, request(seed=seed, **kw), position)
        assert drawn in near
    greedy = one(row, request(**{**kw, "temperature": 0.0}))
    assert x[greedy] >= best - 1e-4


@pytest.mark.parametrize(
    "kw",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 9},
        {"top_p": 0.8},
        {"min_p": 0.05, "top_p": 0.9, "top_k": 10},
        {"logit_bias": {3: 2.0}, "repetition_penalty": 1.5, "history": (1, 2, 3, 4, 4)},
    ],
)
def test_draws_follow_the_distribution(kw):
    row = np.random.default_rng(1).standard_normal(64).astype(np.float32) * 2
    count = 4000
    wanted = [(0, 3, request(seq_id=str(n), seed=n, **kw)) for n in range(count)]
    result = StepResult()
    sample(OPS, row[None], wanted, result)
    drawn = np.bincount([result.sampled[str(n)][0].token_id for n in range(count)], minlength=64)
    expected = np.zeros(64)
    for i, p in allowed(adjusted(row.tolist(), wanted[0][2]), wanted[0][2].params).items():
        expected[i] = p * count
    assert drawn[expected == 0].sum() == 0
    big = expected >= 5
    observed = np.append(drawn[big], drawn[~big].sum())
    ideal = np.append(expected[big], expected[~big].sum())
    keep = ideal > 0
    chi2 = float(((observed - ideal)[keep] ** 2 / ideal[keep]).sum())
    freedom = int(keep.sum()) - 1
    assert chi2 < freedom + 4.5 * math.sqrt(2 * freedom) + 6


def test_a_token_depends_on_its_own_row_and_key_alone():
    # An odd vocabulary: rows start at every alignment.
    rng = np.random.default_rng(3)
    logits = (rng.standard_normal((37, 4999)) * 3).astype(np.float32)
    kinds = [
        {"temperature": 0.0, "logprobs": 5},
        {"logprobs": 2},
        {"top_p": 0.9, "temperature": 0.7, "logprobs": 0},
        {"top_k": 40, "min_p": 0.02},
        {"presence_penalty": 1.0, "history": (1, 2, 3, 4), "logprobs": 20},
    ]
    wanted = [(i, i, request(seq_id=str(i), seed=i, **kinds[i % 5])) for i in range(37)]
    together = StepResult()
    sample(OPS, logits, wanted, together)
    order = rng.permutation(37)
    shuffled = StepResult()
    sample(OPS, logits[order], [(k, *wanted[i][1:]) for k, i in enumerate(order)], shuffled)
    assert shuffled.sampled == together.sampled
    for i, position, one_wanted in wanted:
        alone = StepResult()
        sample(OPS, logits[i : i + 1].copy(), [(0, position, one_wanted)], alone)
        assert alone.sampled[str(i)] == together.sampled[str(i)]


def test_seed_index_and_position_each_change_the_draw():
    flat = np.zeros(10000, dtype=np.float32)
    base = one(flat, request())
    assert base == one(flat, request())
    assert base != one(flat, request(seed=1))
    assert base != one(flat, request(index=1))
    assert base != one(flat, request(), position=4)
    # Position counts from the start of the sequence: a resumed prompt draws the same.
    assert one(flat, request(num_prompt_tokens=3), position=7) == one(
        flat, request(num_prompt_tokens=5), position=7
    )


@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-6, 9e-6])
def test_lowest_id_wins_ties_when_greedy(temperature):
    assert one([0, 5, 5, 1], request(temperature=temperature)) == 1


def test_extreme_temperatures():
    row = [1.0, 1.001, -3e38, 0.0]
    assert {one(row, request(temperature=1e-5, seed=s)) for s in range(50)} == {1}
    assert {one(row, request(temperature=1e30, seed=s)) for s in range(50)} >= {0, 1, 3}


def test_impossible_tokens_stay_impossible():
    row = [-math.inf, 0.0, -math.inf, 0.0]
    assert {one(row, request(seed=s, temperature=5.0)) for s in range(50)} == {1, 3}
    row = [-math.inf, 2.0, -math.inf, 1.9]
    assert one(row, request(repetition_penalty=1.3, history=(0, 1), temperature=0)) == 3


@pytest.mark.parametrize(
    ("row", "kw", "reason"),
    [
        ([0.0, math.nan, 1.0], {}, "not numbers"),
        ([0.0, math.inf, 1.0], {"temperature": 0}, "not numbers"),
        ([-math.inf] * 3, {}, "not numbers"),
        ([0.0, 1.0, 2.0], {"banned_token_ids": (0, 1, 2)}, "no token may be drawn"),
        ([0.0, 1.0, 2.0], {"logit_bias": {3: 1.0}}, "expected token ids from 0 to 2"),
        ([0.0, 3e38, 2.0], {"repetition_penalty": 1e-9, "history": (1,)}, "beyond float32"),
    ],
)
def test_what_cannot_be_drawn_fails_alone(row, kw, reason):
    logits = np.array([[3.0, 0, 0], row, [0, 0, 3.0]], dtype=np.float32)
    wanted = [
        (0, 3, request(seq_id="a", temperature=0)),
        (1, 3, request(seq_id="bad", **kw)),
        (2, 3, request(seq_id="c", temperature=0)),
    ]
    result = StepResult()
    sample(OPS, logits, wanted, result)
    assert {k: [t.token_id for t in v] for k, v in result.sampled.items()} == {"a": [0], "c": [2]}
    assert list(result.failed) == ["bad"]
    assert reason in result.failed["bad"]


def test_a_stop_token_outside_the_vocabulary_is_no_harm():
    assert one([0.0, 2.0, 1.0], request(banned_token_ids=(1, 99), temperature=0)) == 2


def test_the_logits_are_left_as_they_were():
    logits = np.arange(8, dtype=np.float32)[None]
    before = logits.copy()
    kw = {"logit_bias": {1: 5.0}, "presence_penalty": 1.0, "history": (1, 2, 3, 4), "logprobs": 3}
    one(logits[0], request(temperature=0.3, banned_token_ids=(7,), **kw))
    sample(
        OPS, logits, [(0, 3, request(temperature=0.3, banned_token_ids=(7,), **kw))], StepResult()
    )
    assert (logits == before).all()


def test_draws_of_one_sequence_come_in_their_order():
    # Guesses: the first of them may be banned an end, which the later ones are not.
    logits = np.eye(4, dtype=np.float32)
    banned = request(temperature=0, banned_token_ids=(0,))
    free = request(temperature=0)
    assert (free.takes_best, banned.takes_best) == (True, False)
    result = StepResult()
    sample(OPS, logits, [(0, 3, banned), (1, 4, free), (2, 5, banned), (3, 6, free)], result)
    assert [token.token_id for token in result.sampled["s"]] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("kw", "takes_best"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 9e-6}, True),
        ({"temperature": 1e-5}, False),
        ({"temperature": 0, "logprobs": 0}, False),
        ({"temperature": 0, "logit_bias": {1: 1.0}}, False),
        ({"temperature": 0, "frequency_penalty": 0.1}, False),
        ({"temperature": 0, "banned_token_ids": (1,)}, False),
        ({"temperature": 0, "top_k": 3, "min_p": 0.5}, True),
    ],
)
def test_which_draws_are_the_largest_logit(kw, takes_best):
    assert request(**kw).takes_best is takes_best


def test_the_engine_must_settle_seeds():
    with pytest.raises(ValueError, match="settled seed"):
        one([0.0, 1.0], request(seed=None))

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.errors import SequenceError
from octavo.runner.logprobs import prompt_logprobs, token_logprob
from octavo.runner.sampler import sample
from octavo.sched.plan import StepResult
from tests.runner.naive import OPS, request


def test_agree_with_a_plain_log_softmax():
    row = (np.random.default_rng(0).standard_normal(1000) * 4).astype(np.float32)
    exact = row - math.log(math.fsum(math.exp(v) for v in row.tolist()))
    got = token_logprob(row, 17, 20)
    assert got.logprob == pytest.approx(float(exact[17]), abs=1e-5)
    ranked = np.argsort(-exact, kind="stable")[:20]
    assert [i for i, _ in got.top] == ranked.tolist()
    assert [v for _, v in got.top] == pytest.approx(exact[ranked].tolist(), abs=1e-5)


def test_ties_list_the_lowest_ids_first_and_zero_means_the_token_alone():
    row = np.array([1, 2, 2, 0, 2], dtype=np.float32)
    assert [i for i, _ in token_logprob(row, 0, 2).top] == [1, 2]
    assert [i for i, _ in token_logprob(row, 0, 9).top] == [1, 2, 4, 0, 3]
    assert token_logprob(row, 0, 0).top == ()


def test_huge_logits_do_not_overflow():
    row = np.array([3e38, 0, -3e38], dtype=np.float32)
    assert token_logprob(row, 0, 0).logprob == 0.0


def test_they_show_the_model_not_the_request():
    # Before temperature, bias and penalties, as vLLM's raw_logprobs.
    row = np.arange(6, dtype=np.float32)
    result = StepResult()
    wanted = request(temperature=0.1, logit_bias={0: 90.0}, logprobs=1)
    sample(OPS, row[None], [(0, 3, wanted)], result)
    assert result.sampled["s"] == [token_logprob(row, 0, 1)]
    assert result.sampled["s"][0].top[0][0] == 5


def test_none_asked_none_given():
    result = StepResult()
    sample(OPS, np.arange(6, dtype=np.float32)[None], [(0, 3, request())], result)
    assert result.sampled["s"][0].logprob == 0.0
    assert result.sampled["s"][0].top == ()


def test_prompt_rows_equal_rows_alone_and_bad_ones_raise():
    rows = np.random.default_rng(5).standard_normal((7, 501)).astype(np.float32)
    ids = [3, 500, 0, 7, 7, 9, 1]
    assert prompt_logprobs(rows, ids, 2) == [
        token_logprob(row.copy(), i, 2) for row, i in zip(rows, ids, strict=True)
    ]
    rows[3, 8] = np.nan
    with pytest.raises(SequenceError, match="not numbers"):
        prompt_logprobs(rows, ids, 0)

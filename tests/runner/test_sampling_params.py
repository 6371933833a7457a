from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from octavo.errors import RequestError
from octavo.request import SamplingParams


def test_convenient_forms_are_settled():
    p = SamplingParams(
        stop="END",
        stop_token_ids=[5, np.int64(6)],
        logit_bias={"7": 1, 3: -2.5},
        temperature=1,
        top_k=np.int32(4),
    )
    assert p.stop == ("END",)
    assert p.stop_token_ids == (5, 6)
    assert p.logit_bias == ((3, -2.5), (7, 1.0))
    assert (type(p.temperature), type(p.top_k)) == (float, int)
    assert p == replace(p)
    assert hash(p) == hash(replace(p))
    assert SamplingParams(stop=None, logit_bias=None, stop_token_ids=None) == SamplingParams()
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", "hot"), ("temperature", 10**400),
        ("temperature", True), ("top_p", 0), ("top_p", 1.01), ("top_k", -2), ("top_k", 1.5), ("min_p", -0.1),
        ("min_p", 1.1), ("n", 0), ("n", 129), ("n", True), ("seed", 2**64), ("seed", "7"), ("seed", 1.0),
        ("max_tokens", -1), ("max_tokens", 2**31), ("min_tokens", 17), ("min_tokens", None),
        ("presence_penalty", 2.1), ("frequency_penalty", -2.1), ("repetition_penalty", 0), ("repetition_penalty", math.inf),
        ("logprobs", 21), ("logprobs", -1), ("logprobs", True), ("prompt_logprobs", 21), ("stop", [""]), ("stop", 5),
        ("stop", ["ok", 3]), ("stop", b"raw"), ("stop_token_ids", [-1]), ("stop_token_ids", ["1"]), ("stop_token_ids", 5),
        ("stop_token_ids", "12"), ("logit_bias", {"x": 1}), ("logit_bias", {1: math.inf}), ("logit_bias", {1: 101}),
        ("logit_bias", [(1, 2), (1, 3)]), ("logit_bias", 7), ("logit_bias", [1]), ("ignore_eos", 1),
        ("include_stop_str_in_output", None),
    ],
)  # fmt: skip
def test_a_wrong_value_names_its_field(field, value):
    with pytest.raises(RequestError, match=f"^{field}: expected .* got ") as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    assert len(str(caught.value)) < 200


def test_open_ends():
    SamplingParams(max_tokens=None, min_tokens=10**6, seed=-(2**63), n=128, logprobs=0)
    SamplingParams(seed=2**64 - 1, temperature=1e-320, top_p=1e-320, top_k=2**31 - 1)

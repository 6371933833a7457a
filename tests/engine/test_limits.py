"""The door: what is refused, and with which words."""

from __future__ import annotations

import pytest

from octavo.engine.limits import EngineLimits
from octavo.errors import QueueFullError, RequestError
from octavo.request import SamplingParams

LIMITS = EngineLimits(
    max_model_len=20, num_kv_blocks=8, block_size=16, max_num_seqs=4, vocab_size=100,
    max_num_queued_reqs=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "params", "param", "words"),
    [
        ([], {}, "prompt", "at least one token"),
        ([1] * 10, {"max_tokens": 11}, "max_tokens", "20 tokens.*10 prompt tokens.*11 new"),
        ([1] * 21, {"max_tokens": 1}, "prompt", "20 tokens.*21 prompt"),
        ([1] * 20, {"max_tokens": None}, "prompt", "20 prompt tokens"),
        ([1, 100], {}, "prompt", "0 to 99, got 100"),
        ([-1], {}, "prompt", "got -1"),
        ([1], {"n": 5}, "n", "at most 4"),
        ([1], {"logit_bias": {100: 1.0}}, "logit_bias", "0 to 99, got 100"),
        ([1], {"stop_token_ids": [200]}, "stop_token_ids", "got 200"),
    ],
)
def test_refusals(prompt: list[int], params: dict[str, object], param: str, words: str) -> None:
    asked = SamplingParams(**({"max_tokens": 4} | params))
    with pytest.raises(RequestError, match=words) as caught:
        LIMITS.admit(prompt, asked, num_waiting=0)
    assert caught.value.param == param


def test_a_full_queue() -> None:
    with pytest.raises(QueueFullError, match="2 requests wait already, the limit is 2"):
        LIMITS.admit([1], SamplingParams(max_tokens=1), num_waiting=2)


def test_max_tokens_is_settled() -> None:
    assert LIMITS.admit([1] * 15, SamplingParams(max_tokens=None), 0).max_tokens == 5
    assert LIMITS.admit([1] * 20, SamplingParams(max_tokens=0), 0).max_tokens == 0

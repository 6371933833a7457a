"""Same request, same tokens and log-probabilities, whatever runs beside it and whatever memory does."""

from __future__ import annotations

import numpy as np
import pytest

from octavo import LLM, SamplingParams

KINDS = (
    {"temperature": 0.0, "logprobs": 3},
    {"top_p": 0.9, "temperature": 1.3, "logprobs": 0},
    {"n": 3, "top_k": 30, "logprobs": 1},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    {"min_p": 0.02, "logit_bias": {7: 4.0, 9: -100}, "prompt_logprobs": 2},
    {"min_tokens": 20, "stop_token_ids": tuple(range(3, 200)), "ignore_eos": False},
)


@pytest.fixture(scope="module")
def requests():
    rng = np.random.default_rng(7)
    shared = rng.integers(3, 500, 40).tolist()
    prompts, params = [], []
    for i in range(24):
        own = rng.integers(3, 500, int(rng.integers(1, 60))).tolist()
        prompts.append(shared + own if i % 3 == 0 else own)
        kind = {"ignore_eos": True, **KINDS[i % len(KINDS)]}
        params.append(SamplingParams(max_tokens=24 + i, seed=i, **kind))
    return prompts, params


@pytest.fixture(scope="module")
def alone(requests, tiny_model):
    cold = {"enable_prefix_caching": False, "threads": 1, "num_scheduler_steps": 1}
    with LLM(tiny_model, num_kv_blocks=64, **cold) as llm:
        return [llm.generate([p], s)[0] for p, s in zip(*requests, strict=True)]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_kv_blocks": 600},
        {"num_kv_blocks": 600, "num_scheduler_steps": 16},
        {"num_kv_blocks": 600, "max_num_batched_tokens": 13, "block_size": 32},
        {"num_kv_blocks": 20},
        {"num_kv_blocks": 20, "enable_prefix_caching": False, "max_num_batched_tokens": 40},
        {"num_kv_blocks": 60, "max_num_seqs": 5, "threads": 1},
        {"num_kv_blocks": 120, "kv_allocator": "contiguous-max", "max_num_batched_tokens": 40},
        {"num_kv_blocks": 100, "kv_allocator": "contiguous-pow2"},
        {"num_kv_blocks": 100, "kv_allocator": "contiguous-oracle", "speculative": "ngram"},
    ],
    ids=str,
)
def test_company_changes_nothing(settings, requests, alone, tiny_model):
    with LLM(tiny_model, **{"threads": 2, **settings}) as llm:
        together = llm.generate(*requests)
        stats = llm.stats()
        llm.built.core.check()
    for one, other in zip(alone, together, strict=True):
        assert other.outputs == one.outputs  # tokens, text, log-probabilities, how it ended
        assert other.prompt_logprobs == one.prompt_logprobs
    assert stats.num_blocks_used == 0
    if settings["num_kv_blocks"] == 20:
        assert stats.num_preemptions > 3


def test_the_requests_are_of_many_kinds(alone):
    texts = [tuple(c.token_ids) for o in alone for c in o.outputs]
    assert len(set(texts)) == len(texts) == 24 + 2 * 4
    assert {c.finish_reason for o in alone for c in o.outputs} == {"stop", "length"}
    assert sum(o.prompt_logprobs is not None for o in alone) == 4

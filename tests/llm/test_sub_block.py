"""Prompts that part within a block, on a real model: tokens and log-probabilities of a cold run."""

from __future__ import annotations

import numpy as np

from octavo import LLM, SamplingParams

NUM_PAIRS = 24


def test_a_prefix_may_end_anywhere(tiny_model):
    rng = np.random.default_rng(3)
    stem = rng.integers(3, 500, 100).tolist()
    lengths = [0, 1, 15, 16, 17, 99, 100, *rng.integers(2, 99, NUM_PAIRS - 7).tolist()]
    prompts = [stem[:n] + rng.integers(3, 500, 1 + i % 20).tolist() for i, n in enumerate(lengths)]
    params = SamplingParams(max_tokens=5, temperature=0.0, logprobs=2, ignore_eos=True)
    with LLM(tiny_model, num_kv_blocks=200, enable_prefix_caching=False) as llm:
        cold = [llm.generate([prompt], params)[0] for prompt in prompts]
    assert [output.num_cached_tokens for output in cold] == [0] * NUM_PAIRS
    with LLM(tiny_model, num_kv_blocks=200, prefix_match="token") as llm:
        llm.generate([stem], params)
        warm = [llm.generate([prompt], params)[0] for prompt in prompts]
        llm.built.core.check()
    for n, one, other in zip(lengths, cold, warm, strict=True):
        assert other.outputs == one.outputs
        assert other.num_cached_tokens >= n
        assert other.num_cached_tokens < len(other.prompt_token_ids)

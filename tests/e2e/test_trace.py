"""Reuse as computed by others: a trace served by the whole engine, against an independent simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_models import make_hf
from tests.trace_reference import BLOCK, reference_hit_blocks, scaled_prompts

TRACE = "mooncake_conversation_trace.jsonl"
NUM_REQUESTS = 1500
NUM_BLOCKS = 1000


@pytest.mark.slow
def test_hit_blocks_equal_those_of_the_reference(shared_dir: Path, tmp_path: Path) -> None:
    from octavo import LLM, SamplingParams

    traces = shared_dir / "traces"
    expected = reference_hit_blocks(traces, TRACE, NUM_REQUESTS, NUM_BLOCKS)
    assert expected > 1000  # there is something to find
    model = make_hf(tmp_path / "model", "llama", vocab_size=32_000, max_position=16_384)
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    # Whole blocks, as the reference counts; unfinished ones would take room from them.
    settings = {"num_kv_blocks": NUM_BLOCKS, "block_size": BLOCK, "prefix_match": "block"}
    llm = LLM(model=str(model), **settings)
    hits = 0
    try:
        for prompt in scaled_prompts(traces, TRACE, NUM_REQUESTS, tmp_path):
            (output,) = llm.generate([prompt], [params])
            hits += output.num_cached_tokens // BLOCK
    finally:
        llm.close()
    assert hits == expected

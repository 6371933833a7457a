"""Reuse as computed by others: a real trace, served, against an independent cache simulation.

The trace's blocks of 512 tokens become blocks of 16 (scale_trace.py); lru_ref.py, which shares no code with
Octavo, says how many blocks a prefix cache of 1,000 blocks finds; the engine must find exactly as many.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_models import tiny_model

NUM_REQUESTS = 1500
NUM_BLOCKS = 1000
BLOCK = 16


def run(script: Path, *args: str) -> str:
    done = subprocess.run([sys.executable, str(script), *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def traces(shared_dir: Path) -> Path:
    return shared_dir / "traces"


@pytest.fixture(scope="module")
def prompts(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    scaled = tmp_path_factory.mktemp("trace") / "scaled.jsonl"
    source = traces / "mooncake_conversation_trace.jsonl"
    run(
        traces / "scale_trace.py",
        str(source),
        str(scaled),
        "--tokens",
        "--limit",
        str(NUM_REQUESTS),
    )
    return [json.loads(line)["prompt_token_ids"] for line in scaled.open()]


@pytest.fixture(scope="module")
def expected(traces: Path) -> int:
    source = traces / "mooncake_conversation_trace.jsonl"
    options = ["--engine", "--policy", "lru-rev", "--cap", str(NUM_BLOCKS), "--json"]
    said = run(traces / "lru_ref.py", str(source), *options, "--limit", str(NUM_REQUESTS))
    return int(json.loads(said)["hit_blocks"])


@pytest.mark.slow
def test_hit_blocks_equal_those_of_the_reference(
    prompts: list[list[int]], expected: int, tmp_path: Path
) -> None:
    from octavo import LLM, SamplingParams

    model = tiny_model(tmp_path, vocab_size=32000)
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    llm = LLM(model=str(model), num_kv_blocks=NUM_BLOCKS, block_size=BLOCK)
    try:
        hits = 0
        for prompt in prompts:
            (output,) = llm.generate([prompt], [params])
            hits += output.num_cached_tokens // BLOCK
    finally:
        llm.close()
    assert expected > 1000  # there is something to find
    assert hits == expected

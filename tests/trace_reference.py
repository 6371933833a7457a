"""A real trace, scaled down, and what an independent cache simulation finds in it.

The trace's blocks of 512 tokens become blocks of 16 (scale_trace.py). lru_ref.py shares no code with Octavo;
its policy lru-rev with --engine is a prefix cache that frees tail first, keeps full blocks only, and always
computes at least one token.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BLOCK = 16


def _run(script: Path, *args: str) -> str:
    done = subprocess.run([sys.executable, str(script), *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def scaled_prompts(traces: Path, name: str, limit: int, scratch: Path) -> Iterator[list[int]]:
    """The first `limit` requests of trace `name` as token ids between 100 and 30,000."""
    scaled = scratch / f"{name}.scaled"
    _run(
        traces / "scale_trace.py",
        str(traces / name),
        str(scaled),
        "--tokens",
        "--limit",
        str(limit),
    )
    with scaled.open() as lines:
        for line in lines:
            yield json.loads(line)["prompt_token_ids"]


def reference_hit_blocks(traces: Path, name: str, limit: int, num_blocks: int) -> int:
    """Blocks found by the reference, requests served one after the other."""
    options = ["--engine", "--policy", "lru-rev", "--cap", str(num_blocks), "--limit", str(limit)]
    return int(
        json.loads(_run(traces / "lru_ref.py", str(traces / name), *options, "--json"))[
            "hit_blocks"
        ]
    )

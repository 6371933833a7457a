"""The exactness contract on the default model: `octavo verify` on fewer and shorter requests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from octavo.bench.verify.regimes import REGIMES


def verify(*args: object) -> dict[str, Any]:
    """What the command writes as JSON; it must succeed."""
    command = [sys.executable, "-m", "octavo", "verify", *map(str, args), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_all_regimes(default_model_path: Path) -> None:
    result = verify(default_model_path, "--num-requests", 8, "--max-tokens", 24)
    assert len(result["regimes"]) == 1 + len(REGIMES)
    assert result["is_good"]


def test_requests_that_were_recorded(default_model_path: Path, shared_dir: Path) -> None:
    workload = shared_dir / "bench" / "mixed64.json"
    args = ("--workload", workload, "--num-requests", 8, "--max-tokens", 32)
    only = ("together", "from disk after a restart")
    result = verify(default_model_path, *args, *(a for name in only for a in ("--only", name)))
    assert result["is_good"]

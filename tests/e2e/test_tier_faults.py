"""Whatever happens to the disk tier or to the process: never a wrong token, never a dead engine."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from tests.e2e import talk
from tiny_models import make_hf

ROOT = Path(__file__).resolve().parents[2]
# The package as it is imported here, with the same kernels: sources beside it may have none.
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
NUM_KILLS = int(os.environ.get("OCTAVO_KILLS", "4"))
NUM_FLIPS = int(os.environ.get("OCTAVO_FLIPS", "100"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hf(tmp_path_factory.mktemp("models") / "tiny", "llama")


@pytest.fixture(scope="module")
def expected(model: Path) -> list[list[int]]:
    """What each prompt gives alone, with nothing cached."""
    params = SamplingParams(max_tokens=talk.NEW_TOKENS, temperature=0.0, ignore_eos=True)
    with LLM(model=str(model), enable_prefix_caching=False, threads=1, max_model_len=256) as llm:
        outputs = [llm.generate([p], params, use_tqdm=False)[0] for p in talk.prompts()]
    return [list(o.outputs[0].token_ids) for o in outputs]


def start(model: Path, store: Path, seed: int, *rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "tests" / "e2e" / "talk.py"), str(model), str(store)]
    return subprocess.Popen(
        [*command, str(seed), *map(str, rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )


def check(lines: str, expected: list[list[int]]) -> dict[str, Any]:
    """Compare what a process said; the last whole line (a killed one may leave half a line)."""
    last: dict[str, Any] = {}
    for line in lines.splitlines(keepends=True):
        said = json.loads(line) if line.endswith("\n") else {}
        if isinstance(said, dict) and "numbers" in said:
            assert said["tokens"] == [expected[i] for i in said["numbers"]], "wrong tokens"
        last = said if isinstance(said, dict) and said else last
    return last


def talk_to_the_end(
    model: Path, store: Path, expected: list[list[int]], seed: int = 99
) -> tuple[dict[str, Any], str]:
    """A run that nobody disturbs: (its last words, its log)."""
    process = start(model, store, seed, 6)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return check(out, expected), err


def test_killed_in_the_middle(model: Path, expected: list[list[int]], tmp_path: Path) -> None:
    rng = random.Random(5)
    for kill in range(NUM_KILLS):
        process = start(model, tmp_path, kill)
        assert process.stdout is not None
        assert process.stdout.readline() == '"ready"\n', process.stderr and process.stderr.read()
        time.sleep(rng.uniform(0.0, 0.6))
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        check(out, expected)
    said, err = talk_to_the_end(model, tmp_path, expected)
    assert said["promoted"] > 0, "nothing survived the kills"
    assert "Traceback" not in err


def test_flipped_bits(model: Path, expected: list[list[int]], tmp_path: Path) -> None:
    talk_to_the_end(model, tmp_path, expected, seed=1)
    (data,) = tmp_path.rglob("data.mdb")
    rng = random.Random(9)
    with data.open("r+b") as file:
        size = data.stat().st_size
        for _ in range(NUM_FLIPS):
            position = rng.randrange(8192, size)  # past lmdb's own two first pages
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ (1 << rng.randrange(8))]))
    _, err = talk_to_the_end(model, tmp_path, expected, seed=2)
    assert "Traceback" not in err


def test_two_engines_on_one_store(model: Path, expected: list[list[int]], tmp_path: Path) -> None:
    first = start(model, tmp_path, 3)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == '"ready"\n'
        said, err = talk_to_the_end(model, tmp_path, expected)
        assert said["promoted"] == 0
        assert str(first.pid) in err, "who holds the store is not said"
    finally:
        first.kill()
        out, _ = first.communicate(timeout=60)
    check(out, expected)


def test_a_store_of_another_model(model: Path, expected: list[list[int]], tmp_path: Path) -> None:
    other = make_hf(tmp_path / "other", "llama", seed=7)
    process = start(other, tmp_path / "store", 4, 3)
    _out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    said, _ = talk_to_the_end(model, tmp_path / "store", expected)
    assert said["missing"] == 0


def test_a_folder_that_may_not_be_written(
    model: Path, expected: list[list[int]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    said, err = talk_to_the_end(model, tmp_path / "file" / "store", expected)
    assert said["promoted"] == 0
    assert "serving without a disk tier" in err

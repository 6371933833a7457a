"""bench/noon.py: what it says about a day must be what was in it."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="bench/noon.py needs httpx")

SCRIPT = Path(__file__).parents[2] / "bench" / "noon.py"


@pytest.fixture(scope="module")
def noon() -> Any:
    spec = importlib.util.spec_from_file_location("noon", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["noon"] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("by_hour", [0.0, 0.5])
def test_hours_are_told_from_lengths_and_from_the_machine(
    noon: Any, by_hour: float, cached: bool
) -> None:
    rng = random.Random(0)
    turns = []
    for i in range(600):
        at = i / 600
        prompt = int(100 + 400 * at + rng.randrange(200))
        new = rng.randrange(24, 72) if cached else prompt
        copy = 0.002 * (1 + 0.3 * at + 0.2 * rng.random())  # a machine that becomes slower
        tpot = 0.003 + 0.001 * by_hour * at + 1e-6 * prompt + 0.2 * copy
        if rng.random() < 0.1:
            tpot *= 3  # something else ran
        waits = None if rng.random() < 0.3 else copy
        turns.append(noon.Measured(at, 10 * tpot, tpot, prompt, prompt - new, waits))
    alone = [m for m in turns if m.copy is not None]
    middle = sorted(m.tpot for m in alone)[len(alone) // 2]
    for what in ("tpot", "ttft"):  # ten times as long, so the shares are the same
        hours, length = noon.effects(turns, what)
        assert hours * middle == pytest.approx(0.001 * by_hour * 0.9, abs=2e-5)
        assert length * middle == pytest.approx(1e-6 * 360, abs=3e-5)


def test_a_day_is_always_the_same_and_busy_at_all_hours(noon: Any) -> None:
    system, conversations = noon.draw_day(200)
    assert (system, conversations) == noon.draw_day(200)
    turns = [turn for conversation in conversations for turn in conversation]
    per_tenth = [sum(i <= turn.at * 10 < i + 1 for turn in turns) for i in range(10)]
    assert min(per_tenth) > 0.5 * max(per_tenth)

"""The machine of machine.py: by hypothesis, which shrinks what it finds, and on long random walks."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.kv.machine import SEEN, VERBS, KVMachine, walk

NUM_WALKS, NUM_VERBS = 100, 300

KVMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestKV = KVMachine.TestCase


@pytest.fixture(scope="module")
def walked() -> None:
    SEEN.clear()
    for seed in range(NUM_WALKS):
        try:
            walk(seed, NUM_VERBS)
        except Exception as error:
            error.add_note(f"walk({seed}, {NUM_VERBS})")
            raise


def test_random_walks(walked: None) -> None:
    assert sum(SEEN[verb] for verb in set(VERBS)) >= NUM_WALKS * NUM_VERBS


@pytest.mark.parametrize(
    "situation",
    [
        "a list of moves failed",
        "a table cut: contents did not come",
        "an equal block taken at commit",
        "arrived from the disk",
        "copied: borrowed",
        "copied: forked tail",
        "disk write lost",
        "dropped out of the window",
        "equal block in flight at commit",
        "eviction during recall",
        "freed while in flight",
        "holes given up",
        "in flight and shared",
        "missing on the disk",
        "part of a block found",
        "recalled",
        "restarted with blocks",
        "robbed in part",
        "robbed while in flight",
        "room for guesses given back",
        "saved",
        "taken over",
        "taken over, more was of use",
    ],
)
def test_it_happened(situation: str, walked: None) -> None:
    assert SEEN[situation] >= 10

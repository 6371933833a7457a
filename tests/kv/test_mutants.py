"""The tests of kv/ and sched/ find every bug of mutants.py."""

from __future__ import annotations

import os

import pytest

from tests.kv.mutants import survivors


@pytest.mark.skipif("OCTAVO_MUTANTS" not in os.environ, reason="many minutes: set OCTAVO_MUTANTS=1")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutant_is_found() -> None:
    assert survivors() == []

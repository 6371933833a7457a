"""The tests of kv/ and sched/ find every bug of mutants.py."""

from __future__ import annotations

import pytest

from tests.kv.mutants import survivors


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutant_is_found() -> None:
    assert survivors() == []

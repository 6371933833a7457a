"""bench/exactness.py: where its requests come from. What it compares is in tests/e2e."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.exactness import NUM_DRAWN, TOKEN_IDS, draw_requests, read_requests


def test_drawn_requests_are_the_same_each_time():
    requests = draw_requests()
    assert requests == draw_requests()
    assert len(requests) == NUM_DRAWN
    assert all(32 <= len(r["prompt"]) <= 512 and 16 <= r["max_tokens"] <= 256 for r in requests)
    assert all(TOKEN_IDS[0] <= i < TOKEN_IDS[1] for r in requests for i in r["prompt"])


def test_requests_of_a_file(tmp_path: Path):
    path = tmp_path / "w.json"
    requests = [{"prompt": [1, 2], "max_tokens": 3}]
    path.write_text(json.dumps({"requests": requests}))
    assert read_requests(path) == requests


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("{", "expected a workload"),
        ("[]", "expected a workload"),
        ('{"requests": [{"prompt": [1]}]}', "expected a workload"),
        ('{"requests": [{"prompt": [], "max_tokens": 1}]}', "at least one token"),
    ],
)
def test_a_file_that_is_none_ends_in_one_line(tmp_path: Path, text: str | None, message: str):
    path = tmp_path / "w.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        read_requests(path)
    line = str(caught.value)
    assert line.startswith(f"exactness.py: {path}: ")
    assert message in line
    assert "\n" not in line

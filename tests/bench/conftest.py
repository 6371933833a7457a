from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.cli import main
from tests.server.conftest import Live
from tests.server.fake_engine import FakeEngine
from tiny_models import make_hf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 512 tokens of context and as many in its vocabulary."""
    return make_hf(tmp_path_factory.mktemp("models") / "tiny-llama", "llama")


@pytest.fixture
def launch() -> Iterator[Callable[..., Live]]:
    """Starts servers with the fake engine (a token is a byte of a text); stopped after the test."""
    started: list[Live] = []

    def start(engine: FakeEngine | None = None, **settings: Any) -> Live:
        started.append(Live(engine or FakeEngine(), **settings))
        return started[-1]

    yield start
    for live in started:
        live.close()


class Octavo:
    """`octavo bench ...` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *args: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["octavo", "bench", *map(str, args)])
        self._capsys.readouterr()  # what the server said
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = self._capsys.readouterr()
        return int(exit.value.code or 0), out, err

    def json(self, *args: object) -> dict[str, Any]:
        code, out, err = self(args[0], "--json", "-", *args[1:])
        assert code == 0, err
        result: dict[str, Any] = json.loads(out)  # and nothing else is on standard output
        return result


@pytest.fixture
def octavo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Octavo:
    return Octavo(monkeypatch, capsys)

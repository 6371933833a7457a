"""The layer contracts hold, and would notice if they did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = "from importlinter.cli import lint_imports_command as c; c()"


def lint(cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over `cwd`/src with the contracts of `cwd`/pyproject.toml."""
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's Python files and its contracts, to be broken."""
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold() -> None:
    run = lint(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 broken" in run.stdout


@pytest.mark.parametrize(
    ("file", "statement", "contract"),
    [
        ("kv/moves.py", "import octavo.sched.plan", "Layers"),
        ("sched/plan.py", "import octavo.text", "Layers"),
        ("server/__init__.py", "import octavo.runner", "Layers"),
        ("new_idea.py", "", "Layers"),
        ("engine/outputs.py", "import numpy", "control plane"),
        ("sched/plan.py", "import fastapi", "control plane"),
        ("kv/moves.py", "import octavo.request", "kv/ is"),
        ("models/__init__.py", "import octavo.request", "Models and ops"),
        ("ops/cpu.py", "import octavo.ops.reference", "Op sets"),
        ("runner/__init__.py", "import octavo.engine.outputs", "only llm.py"),
    ],
)
def test_a_forbidden_import_is_caught(copy: Path, file: str, statement: str, contract: str) -> None:
    path = copy / "src" / "octavo" / file
    source = path.read_text() if path.exists() else ""
    # Inside a function: the contracts see those as well.
    path.write_text(f"{source}\n\ndef hidden() -> None:\n    {statement or 'pass'}\n")
    run = lint(copy)
    assert run.returncode != 0
    broken = [line for line in run.stdout.splitlines() if " BROKEN" in line]
    undeclared = "new_idea" in run.stdout and file == "new_idea.py"
    assert undeclared or any(contract in line for line in broken), run.stdout


def test_every_control_plane_package_is_under_the_array_contract() -> None:
    settings: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = (c for c in contracts if c["name"].startswith("The control plane"))
    for name in ("kv", "sched", "engine", "sim", "request", "config", "errors"):
        there = [ROOT / "src" / "octavo" / name, ROOT / "src" / "octavo" / f"{name}.py"]
        if any(p.exists() for p in there):
            assert f"octavo.{name}" in contract["source_modules"]


def test_every_test_folder_has_a_tier() -> None:
    from tests.conftest import TIERS

    folders = {
        p.parent.relative_to(ROOT / "tests").parts[0] for p in ROOT.glob("tests/*/test_*.py")
    }
    assert folders == set(TIERS)

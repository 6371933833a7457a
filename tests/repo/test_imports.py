"""What importing a part of Octavo loads, seen in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ARRAYS = {"numpy", "torch", "gguf", "safetensors"}
HTTP = {"starlette", "fastapi", "pydantic", "uvicorn"}
SRC = Path(__file__).resolve().parents[2] / "src" / "octavo"


def modules_loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded: set[str] = set(json.loads(run.stdout))
    return loaded


def control_plane() -> list[str]:
    names = ["octavo.request", "octavo.config", "octavo.errors"]
    for package in ("kv", "sched", "engine", "sim"):
        for path in sorted((SRC / package).rglob("*.py")):
            parts = path.relative_to(SRC.parent).with_suffix("").parts
            names.append(".".join(p for p in parts if p != "__init__"))
    return names


def test_import_octavo_loads_neither_arrays_nor_model_code() -> None:
    loaded = modules_loaded_by("import octavo; octavo.SamplingParams; octavo.__version__")
    assert not loaded & (ARRAYS | HTTP)
    assert {m for m in loaded if m.startswith("octavo")} == {
        "octavo",
        "octavo.request",
        "octavo.errors",
    }


@pytest.mark.parametrize("module", ["octavo.llm", "octavo.cli"])
def test_torch_is_never_needed(module: str) -> None:
    assert "torch" not in modules_loaded_by(f"import {module}")


def test_the_control_plane_loads_no_arrays_and_no_http() -> None:
    names = control_plane()
    assert len(names) > 8  # the list is found, not empty
    loaded = modules_loaded_by("\n".join(f"import {name}" for name in names))
    assert set(names) <= loaded
    assert not loaded & (ARRAYS | HTTP)
    allowed = ("octavo.kv", "octavo.sched", "octavo.engine", "octavo.sim", "octavo.text")
    others = {m for m in loaded if m.startswith("octavo.") and not m.startswith(allowed)}
    assert others == {"octavo.request", "octavo.config", "octavo.errors"}

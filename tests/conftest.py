"""Fixtures and markers for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# A busy machine is no failure. tests/kv/mutants.py does not ask for the smallest reason.
patient = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.register_profile("octavo", patient)
settings.register_profile("no-shrink", patient, phases=[Phase.explicit, Phase.generate])
settings.load_profile("no-shrink" if os.environ.get("OCTAVO_NO_SHRINK") else "octavo")

ROOT = Path(__file__).resolve().parents[1]

# Folder under tests/ -> tier. Tests of the repository itself stand apart.
TIERS = {
    **dict.fromkeys(("kv", "sched", "engine", "text", "server", "cli"), "control"),
    **dict.fromkeys(("cpu", "models", "runner", "llm", "bench"), "cpu"),
    "e2e": "e2e",
    "repo": "repo",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in TIERS:
            item.add_marker(TIERS[folder])


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Traces, workloads and texts that lie beside the repository, or in $OCTAVO_SHARED."""
    path = Path(os.environ.get("OCTAVO_SHARED") or ROOT / ".." / "shared").resolve()
    if not (path / "bench" / "mixed64.json").is_file():
        pytest.skip(f"no shared data at {path}; set OCTAVO_SHARED to the folder that holds bench/")
    return path


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model in the user's cache, downloaded on first use (about 100 MB)."""
    from octavo.config import ModelConfig
    from octavo.errors import OctavoError
    from octavo.models.fetch import resolve_model

    try:
        return Path(resolve_model(ModelConfig().model))
    except (OctavoError, OSError) as error:
        reason = f"the default model is not at hand: {error}"
        if in_ci():
            pytest.fail(reason)
        pytest.skip(reason)

"""Declared, used and explained: the three lists of dependencies agree."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# uvicorn finds these at run time; src/ need not import them.
BY_NAME_ONLY = {"uvloop"}
IMPORT_TO_PACKAGE = {"pydantic_core": "pydantic"}


def name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match
    return match[0]


def imported() -> set[str]:
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    third_party = found - set(sys.stdlib_module_names) - {"octavo"}
    return {IMPORT_TO_PACKAGE.get(m, m).replace("_", "-") for m in third_party}


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    declared = {name(r).replace("_", "-") for r in PROJECT["dependencies"]}
    assert imported() | BY_NAME_ONLY == declared


def test_each_dependency_has_its_reason_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text[text.index("## Dependencies") :], re.M)
    explained = {
        p.strip() for packages, reason in rows if reason.strip() for p in packages.split(",")
    }
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    assert {name(r) for r in wanted} <= explained

from __future__ import annotations

from pathlib import Path

from tests.repo import line_budget


def test_the_package_keeps_the_budget() -> None:
    broken, _ = line_budget.measure(line_budget.PACKAGE)
    assert broken == []


def test_a_long_function_and_a_long_file_are_named(tmp_path: Path) -> None:
    package = tmp_path / "octavo"
    package.mkdir()
    body = "".join(f"    x{i} = {i}\n" for i in range(line_budget.MAX_FUNCTION))
    (package / "long_function.py").write_text("async def f():\n" + body)
    (package / "long_file.py").write_text("x = 1\n" * (line_budget.MAX_FILE + 1))
    broken, figures = line_budget.measure(package)
    assert broken == [
        "octavo/long_file.py: 401 lines, at most 400 allowed",
        "octavo/long_function.py:1: f() has 61 lines, at most 60 allowed",
        "median file has 231 lines, at most 120 allowed",
    ]
    assert "2 files, 462 lines" in figures


def test_one_line_packages_do_not_lower_the_median(tmp_path: Path) -> None:
    package = tmp_path / "octavo"
    package.mkdir()
    (package / "a.py").write_text("x = 1\n" * 130)
    for i in range(5):
        (package / f"p{i}").mkdir()
        (package / f"p{i}" / "__init__.py").write_text('"""One."""\n')
    broken, _ = line_budget.measure(package)
    assert broken == ["median file has 130 lines, at most 120 allowed"]

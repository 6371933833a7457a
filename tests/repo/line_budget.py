"""The line budget: small files with one purpose, functions that fit on a screen.

    python tests/repo/line_budget.py [PACKAGE_DIR]

Prints what breaks the budget and exits 1, or prints the figures and exits 0. C++ kernels are exempt.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_MEDIAN_FILE = 120
MAX_FILE = 400
MAX_FUNCTION = 60

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "octavo"


def functions(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of every function, decorators not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def measure(package: Path) -> tuple[list[str], str]:
    """What breaks the budget under `package`, and one line of figures."""
    broken: list[str] = []
    sizes: dict[Path, int] = {}
    longest = 0
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = path.relative_to(package.parent)
        count = source.count("\n")
        if path.name != "__init__.py":  # a one-line __init__ must not lower the median
            sizes[name] = count
        if count > MAX_FILE:
            broken.append(f"{name}: {count} lines, at most {MAX_FILE} allowed")
        for function, line, length in functions(ast.parse(source)):
            longest = max(longest, length)
            if length > MAX_FUNCTION:
                broken.append(
                    f"{name}:{line}: {function}() has {length} lines, at most {MAX_FUNCTION} allowed"
                )
    if not sizes:
        return [f"{package}: no Python files found"], ""
    median = statistics.median(sizes.values())
    if median > MAX_MEDIAN_FILE:
        broken.append(f"median file has {median:g} lines, at most {MAX_MEDIAN_FILE} allowed")
    figures = (
        f"line budget: {len(sizes)} files, {sum(sizes.values())} lines, median {median:g}, "
        f"longest file {max(sizes.values())}, longest function {longest}"
    )
    return broken, figures


def main() -> int:
    broken, figures = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
    print("\n".join([*broken, figures]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

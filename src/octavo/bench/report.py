"""Results for people (tables on standard output) and for programs (JSON)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ConfigError


def machine() -> dict[str, Any]:
    """What the figures were taken on: processor, cores, and how busy the machine was (1 minute's
    load)."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": name, "cores": cores, "load_average": round(os.getloadavg()[0], 2)}


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; columns whose cells are numbers are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [list(row) for row in rows]
    made = Table(box=box.SIMPLE, pad_edge=False)
    for i, name in enumerate(head):
        numbers = all(_is_number(row[i]) for row in cells)
        made.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in cells:
        made.add_row(*row)
    width = None if sys.stdout.isatty() else 160  # a file has no edge
    console = Console(width=width, highlight=False)
    if title:
        console.print(title, style="bold", markup=False)
    console.print(made)


def write_json(target: str | None, result: Mapping[str, Any]) -> None:
    """The result as one JSON object, to a file or, for `-`, to standard output. Raises
    ConfigError."""
    if target is None:
        return
    text = msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json: cannot write {target}: {error.strerror}", "json") from None


def check_json(target: str | None, flag: str = "json") -> None:
    """Refuse a file that cannot be written before the work is done, not after it."""
    if target in (None, "-"):
        return
    folder = Path(str(target)).absolute().parent
    if not folder.is_dir() or Path(str(target)).is_dir():
        raise ConfigError(f"--{flag}: expected a file in a folder that exists, got {target}", flag)


def _is_number(text: str) -> bool:
    try:
        float(text.rstrip("%x").replace(",", "") or "0")
    except ValueError:
        return text in ("-", "inf")
    return True

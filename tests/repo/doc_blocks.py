"""The fenced blocks of the documents, and what running their commands means.

A ```bash block is run line by line with bash, a ```python block as a script. Other languages are not
run. An HTML comment on the line before the fence says otherwise:

    <!-- test: help -->   too long to run: the script must exist and know every option that is shown
    <!-- test: none WHY --> not run, for the stated reason
    <!-- test: output --> a ```text block: every line was printed by the blocks before it, other numbers aside

Some commands are recognised by themselves:

    pip install, python -m venv, pytest, make, .ci/run    .ci/run runs them; here they are only looked up
    octavo serve                                          started on a free port, stopped at the end
    anything that names 127.0.0.1:8000                    goes to that server's port
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):8000\b")

_BLOCK = re.compile(
    r"^(?:<!-- test: (?P<mark>\w+)(?P<why>[^\n]*?) -->\n)?^```(?P<lang>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SET_UP = re.compile(r"(python3? -m venv|source|\.|cd|git clone)\s")
_CI = re.compile(r"(pip install|pytest|make|\.ci/run)\b")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line of text."""

    path: Path
    line: int
    lang: str
    text: str
    mark: str = ""
    why: str = ""

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def wants_server(self) -> bool:
        return ADDRESS.search(self.text) is not None


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(path: Path, text: str | None = None) -> list[Block]:
    """All fenced blocks of a document, in order."""
    text = path.read_text(encoding="utf-8") if text is None else text
    found = []
    for m in _BLOCK.finditer(text):
        line = text.count("\n", 0, m.start("text")) + 1
        mark, why = m["mark"] or "", (m["why"] or "").strip()
        found.append(Block(path, line, m["lang"], m["text"], mark, why))
    return found


def commands(text: str) -> list[str]:
    """The commands of a bash block: continued lines, open quotes and here-documents joined, comments
    dropped, `a && b` taken apart at the top level (as it stands in set-up lines)."""
    text = re.sub(r"\\\n\s*", "", text)
    lines: list[str] = []
    here = ""
    for line in text.splitlines():
        if here or (lines and _is_open(lines[-1])):
            lines[-1] += "\n" + line
            here = "" if line == here else here
        elif line.strip() and not line.lstrip().startswith("#"):
            lines.append(line)
            m = re.search(r"<<\s*'?(\w+)'?", line)
            here = m[1] if m else ""
    out: list[str] = []
    for line in lines:
        parts = [p.strip() for p in line.split("&&")]
        apart = any(kind(p) != "run" for p in parts)
        out += parts if apart else [line.strip()]
    return [re.sub(r"\s+#\s.*$", "", c) if "\n" not in c else c for c in out]


def _is_open(command: str) -> bool:
    """True if a quotation goes on in the next line."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False


def kind(command: str) -> str:
    """serve, setup, ci or run."""
    if re.match(r"octavo serve\b", command):
        return "serve"
    if _SET_UP.match(command):
        return "setup"
    return "ci" if _CI.match(command) else "run"

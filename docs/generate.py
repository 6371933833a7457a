"""Writes docs/flags.md from the settings in octavo/config.py.

    python docs/generate.py [--check]

--check only compares, and exits 1 if the file on disk is out of date.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from octavo import config

TARGET = Path(__file__).with_name("flags.md")

HEAD = """# Flags

Written by `docs/generate.py` from the dataclasses in `src/octavo/config.py`; do not edit by hand.

The same names, with underscores, are keyword arguments of `octavo.LLM(...)`, except those of the server.
Sizes take K, M, G and T (powers of 1024).
"""

SECTIONS = [
    ("Model", config.ModelConfig),
    ("KV memory", config.CacheConfig),
    ("Scheduler", config.SchedulerConfig),
    ("Device", config.DeviceConfig),
    ("Server", config.ServerConfig),
]


def flag(field: dataclasses.Field[Any]) -> str:
    """How the field is written on the command line."""
    name = "--" + field.name.replace("_", "-")
    if field.metadata.get("positional"):
        return f"`{field.name.upper()}`"
    if isinstance(field.default, bool):
        return f"`{name}` / `--no-{name[2:]}`"
    return f"`{name}`"


def row(field: dataclasses.Field[Any]) -> str:
    meaning = field.metadata["help"]
    if "choices" in field.metadata:
        meaning += "; one of " + ", ".join(f"`{c}`" for c in field.metadata["choices"])
    if "env" in field.metadata:
        meaning += f"; environment: `{field.metadata['env']}`"
    default = "" if field.default is None else f"`{field.default}`"
    if isinstance(field.default, bool):
        default = "on" if field.default else "off"
    return f"| {flag(field)} | {default} | {meaning.replace('|', chr(92) + '|')} |"


def render() -> str:
    parts = [HEAD]
    for title, cls in SECTIONS:
        rows = "\n".join(row(f) for f in dataclasses.fields(cls))
        parts.append(f"## {title}\n\n| flag | default | meaning |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/flags.md from octavo/config.py.")
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    text = render()
    if not check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET} is out of date: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

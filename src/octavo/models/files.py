"""Reading model files: bytes mapped, JSON parsed, both with errors that name the file."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

from octavo.errors import MalformedModelError


def map_file(path: Path) -> mmap.mmap | bytes:
    """The file's bytes, memory-mapped read-only. Raises MalformedModelError if it cannot be read."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise MalformedModelError(f"{path}: cannot be read: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises MalformedModelError naming the file, line and column."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise MalformedModelError(f"{path}: expected a JSON file: {error}") from error
    if not isinstance(value, dict):
        raise MalformedModelError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value

"""Where log lines go: standard error, one line each."""

from __future__ import annotations

import logging
import sys


def configure(level: str) -> None:
    """Show log lines of `level` (debug, info, warning, error) and above."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("octavo").setLevel(level.upper())
    if level == "debug":
        logging.getLogger("uvicorn").setLevel(logging.INFO)


class _Lines(logging.Formatter):
    """`message`; from warnings on with the level before it."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno <= logging.INFO else f"{record.levelname.lower()}: {text}"

"""A progress bar for loading, only where someone watches and only if it takes long."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

PATIENCE = 1.0
"""Seconds of loading without a bar."""


class LoadBar:
    """Call it with (done, total)."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` parts of `total` are loaded."""
        self._since = self._since or time.monotonic()
        if self._bar is None:
            if time.monotonic() - self._since < PATIENCE or not sys.stderr.isatty():
                return
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("loading weights", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

"""A progress bar on standard error, only where someone watches."""

from __future__ import annotations

import sys
from typing import Any, Self


class Bar:
    """Counts from 0 to `total`; silent unless standard error is a terminal and `show`."""

    def __init__(self, label: str, total: int, show: bool = True) -> None:
        self._bar: Any = None
        if show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(label, total=total)

    def advance(self, label: str | None = None) -> None:
        """One more is done; `label` changes what stands before the bar."""
        if self._bar is not None:
            changes = {} if label is None else {"description": label}
            self._bar.update(self._task, advance=1, **changes)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

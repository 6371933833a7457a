"""How `--help` looks: options under the heading of their group, no table that cuts names short."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

WIDTH = 100
"""Columns of the help at most."""


class GroupedCommand(TyperCommand):
    """A command whose options stand in groups; those without one come first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = getattr(param, "rich_help_panel", None) or "Options"
                if param.param_type_name == "argument":
                    panel, record = "Arguments", (re.sub(r" <[^>]+>$", "", record[0]), record[1])
                groups.setdefault(panel, []).append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples as they are: no wrapping, or a command could not be copied."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.strip().splitlines():
                    formatter.write(f"  {line.strip()}\n")

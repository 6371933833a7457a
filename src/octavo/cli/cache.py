"""`octavo cache ...`: what lies in the directory of --disk-kv-path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.help import WIDTH, GroupedCommand

if TYPE_CHECKING:
    from octavo.llm.stores import StoreInfo

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at, check or delete the KV blocks that servers keep on disk.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)

Directory = Annotated[
    Path, typer.Argument(help="the directory of --disk-kv-path", metavar="DIR", show_default=False)
]


@app.command(cls=GroupedCommand)
def info(directory: Directory) -> None:
    """List the models whose blocks lie in DIR."""
    from octavo.llm.stores import store_infos

    infos = store_infos(directory.expanduser())
    if infos:
        _print_table(infos)
    else:
        print(f"no KV blocks in {directory}")


@app.command(cls=GroupedCommand)
def verify(directory: Directory) -> None:
    """Read every block in DIR and check it. Exit code 1 if one is damaged, or a server runs on it.

    A server drops damaged blocks by itself and computes them again.
    """
    from octavo.llm.stores import check_stores

    num_damaged = 0
    for check in check_stores(directory.expanduser()):
        num_damaged += len(check.damaged)
        print(f"{check.path.name}: {check.num_blocks:,} blocks, {len(check.damaged):,} damaged")
        for what in check.damaged:
            print(f"  {what}")
    if num_damaged:
        raise typer.Exit(1)


@app.command(cls=GroupedCommand)
def clear(
    directory: Directory,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete all KV blocks in DIR, and nothing else there. Refused while a server uses them."""
    from octavo.llm.stores import clear_stores, store_infos

    path = directory.expanduser()
    if not yes:
        infos = store_infos(path)
        if not infos:
            print(f"no KV blocks in {directory}")
            return
        _print_table(infos)
        if not typer.confirm(f"Delete all KV blocks in {directory}?", err=True):
            raise typer.Exit(1)
    num = clear_stores(path)
    print(f"deleted the KV blocks of {num} model{'s' * (num != 1)} in {directory}")


def _print_table(infos: list[StoreInfo]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("store", "model", "dtype"):
        table.add_column(name, no_wrap=True)
    for name in ("block size", "blocks", "tokens", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state")
    for row in infos:
        about = row.about
        state = row.problem or (f"in use by process {row.pid}" if row.pid else "free")
        table.add_row(
            row.path.name,
            about.model if about else "?",
            about.kv_dtype if about else "?",
            f"{about.block_size}" if about else "?",
            f"{row.num_blocks:,}",
            f"{row.num_tokens:,}",
            f"{row.num_bytes / 1e6:,.1f}",
            state,
        )
    # Into a pipe or file go whole lines, whatever the width of the terminal.
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False).print(table)

"""The commands and their flags. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from octavo import __version__
from octavo.cli.bench import app as bench
from octavo.cli.options import with_options
from octavo.cli.sampling import SamplingOptions
from octavo.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    ServerConfig,
)

ENGINE = (ModelConfig, CacheConfig, SchedulerConfig, DeviceConfig)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long flag names short
    help="An LLM server whose KV cache is virtual memory.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"octavo {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """An LLM server whose KV cache is virtual memory."""


@app.command()
@with_options(*ENGINE, ServerConfig)
def serve(settings: dict[str, Any]) -> None:
    """Serve a model with an OpenAI-compatible API."""
    from octavo.cli.serve import serve

    serve(settings)


@app.command()
@with_options(*ENGINE, SamplingOptions)
def generate(
    settings: dict[str, Any],
    prompt: Annotated[
        str | None, typer.Option(help="text to complete (default: standard input)")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="print tokens as they come")] = False,
) -> None:
    """Complete a text."""
    from octavo.cli.generate import generate

    generate(settings, prompt, stream)


@app.command()
@with_options(*ENGINE, SamplingOptions)
def chat(
    settings: dict[str, Any],
    system: Annotated[str | None, typer.Option(help="system message")] = None,
) -> None:
    """Talk to a model in the terminal."""
    from octavo.cli.chat import chat

    chat(settings, system)


@app.command()
def pull(
    model: Annotated[str, typer.Argument(help="catalog alias or hub id", metavar="MODEL")],
) -> None:
    """Download a model into the cache and print where it lies."""
    from octavo.cli import logs
    from octavo.models.fetch import resolve_model

    logs.configure("info")
    print(resolve_model(model), file=sys.stdout)


app.add_typer(bench, name="bench")

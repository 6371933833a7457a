"""The commands and their flags. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from octavo import __version__
from octavo.bench.verify.options import VerifyOptions
from octavo.cli.bench import app as bench
from octavo.cli.cache import app as cache
from octavo.cli.help import WIDTH, GroupedCommand
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
ONE_REQUEST = ("serve_only", "many_only")
"""Settings that mean nothing to a command which runs one request at a time."""
OFFLINE = ("serve_only",)
"""The same for a command without a server."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut long flag names short
    help="An LLM server whose KV cache is virtual memory.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
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


@app.command(
    cls=GroupedCommand,
    epilog="""
    octavo serve
    octavo serve qwen2.5-0.5b-instruct --host 0.0.0.0 --kv-cache-memory-bytes 4G
    """,
)
@with_options(ServerConfig, *ENGINE)
def serve(settings: dict[str, Any]) -> None:
    """Serve a model with an OpenAI-compatible API."""
    from octavo.cli.serve import serve

    serve(settings)


@app.command(
    cls=GroupedCommand,
    epilog="""
    octavo generate --prompt "The capital of France is" --max-tokens 8 --temperature 0
    octavo generate ./model.gguf --stream < prompt.txt
    """,
)
@with_options(SamplingOptions, *ENGINE, but=ONE_REQUEST)
def generate(
    settings: dict[str, Any],
    prompt: Annotated[
        str | None,
        typer.Option(help="text to complete (default: standard input)", metavar="TEXT"),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="print tokens as they come")] = False,
) -> None:
    """Complete a text."""
    from octavo.cli.generate import generate

    generate(settings, prompt, stream)


@app.command(
    cls=GroupedCommand,
    epilog="""
    octavo chat --system "You answer in one sentence."
    """,
)
@with_options(SamplingOptions, *ENGINE, but=ONE_REQUEST)
def chat(
    settings: dict[str, Any],
    system: Annotated[
        str | None,
        typer.Option(help="system message that the conversation begins with", metavar="TEXT"),
    ] = None,
) -> None:
    """Talk to a model in the terminal."""
    from octavo.cli.chat import chat

    chat(settings, system)


@app.command(
    cls=GroupedCommand,
    epilog="""
    octavo verify
    octavo verify ./model.gguf --num-requests 6 --only preempted
    """,
)
@with_options(ModelConfig, VerifyOptions, but=OFFLINE)
def verify(settings: dict[str, Any]) -> None:
    """Prove that the same requests give the same tokens, whatever the memory does."""
    from octavo.cli.verify import verify

    verify(settings)


@app.command(cls=GroupedCommand)
def pull(
    model: Annotated[
        str,
        typer.Argument(
            help="catalog alias, hub id (org/name), or a GGUF file on the hub (org/name/FILE.gguf)",
            metavar="MODEL",
        ),
    ],
) -> None:
    """Download a model into the cache and print its path."""
    from octavo.cli import logs
    from octavo.models.fetch import resolve_model

    logs.configure("info")
    print(resolve_model(model), file=sys.stdout)


app.add_typer(bench, name="bench")
app.add_typer(cache, name="cache")

"""`octavo bench ...`: the benchmarks' commands, and what they need of the parts above `bench`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from octavo.bench.options import (
    CompareOptions,
    DatasetOptions,
    KernelOptions,
    LatencyOptions,
    OutputOptions,
    SeedOptions,
    ServeOptions,
    StartupOptions,
    StepOptions,
)
from octavo.cli.help import WIDTH, GroupedCommand
from octavo.cli.options import with_options
from octavo.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.bench.workload.sample import Tokenizer
    from octavo.llm import LLM
    from octavo.llm.build import Built

ENGINE = (ModelConfig, CacheConfig, SchedulerConfig, DeviceConfig)
OFFLINE = ("serve_only",)
T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure kernels, the engine, or a server.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
)

ModelFlag = Annotated[
    str | None, typer.Option("--model", help="the same as MODEL", metavar="MODEL")
]


@app.command(cls=GroupedCommand, context_settings={"allow_extra_args": True})
@with_options(ServeOptions, DatasetOptions, SeedOptions, OutputOptions)
def serve(settings: dict[str, Any], ctx: typer.Context) -> None:
    """Send a workload to any server with OpenAI's API."""
    from octavo.bench.serve.run import bench_serve

    if ctx.args:  # `--goodput ttft:500 tpot:50`, as vLLM takes it
        if not settings["goodput"] or not all(":" in text for text in ctx.args):
            raise typer.BadParameter(f"unexpected: {' '.join(ctx.args)}")
        settings["goodput"] = (*settings["goodput"], *ctx.args)
    options = _take(ServeOptions, settings)
    dataset = _take(DatasetOptions, settings)
    tokenizer = _tokenizer(options.tokenizer) if options.tokenizer else None
    seed = _take(SeedOptions, settings).seed
    bench_serve(options, dataset, _take(OutputOptions, settings), seed, tokenizer)


@app.command(cls=GroupedCommand)
@with_options(*ENGINE, LatencyOptions, OutputOptions, but=OFFLINE)
def latency(settings: dict[str, Any], model_name: ModelFlag = None) -> None:
    """Time one batch, without a server."""
    from octavo.bench.offline.latency import bench_latency

    options, output = _take(LatencyOptions, settings), _take(OutputOptions, settings)
    with _load(settings, model_name) as llm:
        bench_latency(llm, options, output)


@app.command(cls=GroupedCommand)
@with_options(*ENGINE, DatasetOptions, OutputOptions, but=OFFLINE)
def throughput(settings: dict[str, Any], model_name: ModelFlag = None) -> None:
    """Run all requests of a workload at once, without a server."""
    from octavo.bench.offline.throughput import bench_throughput

    dataset, output = _take(DatasetOptions, settings), _take(OutputOptions, settings)
    with _load(settings, model_name) as llm:
        bench_throughput(llm, llm.built.tokenizer, dataset, output, settings["seed"])


@app.command(cls=GroupedCommand)
@with_options(*ENGINE, StepOptions, OutputOptions, but=OFFLINE)
def step(settings: dict[str, Any], model_name: ModelFlag = None) -> None:
    """Show where the time of a step goes: in Python, in the model."""
    from octavo.bench.offline.step import bench_step

    options, output = _take(StepOptions, settings), _take(OutputOptions, settings)
    with _load(settings, model_name) as llm:
        bench_step(llm, options, output)


@app.command(cls=GroupedCommand)
@with_options(CompareOptions, OutputOptions, *ENGINE, but=(*OFFLINE, "paged_only"))
def compare(settings: dict[str, Any], model_name: ModelFlag = None) -> None:
    """Contiguous KV memory against paged: what each brings, and what it costs."""
    from octavo.bench.compare.run import bench_compare

    options, output = _take(CompareOptions, settings), _take(OutputOptions, settings)
    built: Built | None = None

    def start(changes: Mapping[str, Any]) -> LLM:
        nonlocal built
        llm = _load({**settings, **changes}, model_name, built)
        built = built or llm.built
        return llm

    settings["model"] = _model(settings, model_name)
    bench_compare(start, settings, lambda: _tokenizer(settings["model"]), options, output)


@app.command(cls=GroupedCommand)
@with_options(KernelOptions, OutputOptions)
def kernels(settings: dict[str, Any]) -> None:
    """Measure GB/s and GOP/s of each kernel beside the machine's own peaks."""
    from octavo.bench.kernels.run import bench_kernels

    bench_kernels(_take(KernelOptions, settings), _take(OutputOptions, settings))


@app.command(cls=GroupedCommand)
@with_options(StartupOptions, OutputOptions)
def startup(
    settings: dict[str, Any],
    serve_args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- MODEL FLAGS]", help="what `octavo serve` gets; put -- before it"
        ),
    ] = None,
) -> None:
    """Time fresh processes of `octavo serve` until /health gives 200."""
    from octavo.bench.startup import bench_startup

    options, output = _take(StartupOptions, settings), _take(OutputOptions, settings)
    bench_startup(serve_args or [], options, output)


def _take(cls: type[T], settings: dict[str, Any]) -> T:
    """An instance of the options class, its fields taken out of `settings`."""
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: settings.pop(name) for name in names})


def _load(settings: dict[str, Any], model_name: str | None, like: Built | None = None) -> LLM:
    """The model of MODEL or --model; `like`: one whose weights are used."""
    from octavo.cli import logs
    from octavo.cli.progress import LoadBar

    settings["model"] = _model(settings, model_name)
    logs.configure("warning")
    from octavo.llm import LLM
    from octavo.llm.settings import engine_config

    if like is not None:
        return LLM.from_config(engine_config(settings), like=like)
    with LoadBar() as bar:
        return LLM.from_config(engine_config(settings), progress=bar)


def _model(settings: Mapping[str, Any], model_name: str | None) -> str:
    """MODEL, or what --model says."""
    given: str = settings["model"]
    if model_name is not None and given not in (ModelConfig().model, model_name):
        raise ConfigError(f"--model: MODEL is given twice, {given} and {model_name}", "model")
    return model_name or given


def _tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model, without its weights."""
    from octavo.llm.build import load_tokenizer
    from octavo.models.checkpoint import open_checkpoint
    from octavo.models.fetch import resolve_model

    return load_tokenizer(open_checkpoint(resolve_model(model)))

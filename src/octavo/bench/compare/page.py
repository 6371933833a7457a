"""The comparison as one HTML file with charts; nothing in it is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from octavo.bench.compare import charts, words
from octavo.bench.compare.charts import Series
from octavo.bench.compare.measure import ALLOCATORS, Run
from octavo.bench.compare.result import Result
from octavo.bench.compare.workloads import Workload
from octavo.bench.stats import percentile
from octavo.errors import ConfigError

PARTS = (
    ("tokens", "tokens"),
    ("later", "reserved, used later"),
    ("never", "reserved, never used"),
    ("external", "free, no hole large enough"),
    ("free", "free"),
)
"""Parts of the memory (see meter.py): CSS class, and what the legend calls it."""

MOST_STAIRS = 120

CSS = {name: f"s{i}" for i, name in enumerate(ALLOCATORS)}
"""Allocator -> class of its colour."""


def write_page(target: str, result: Result) -> None:
    """Write the report. Raises ConfigError if the file cannot be written."""
    try:
        Path(target).write_text(render(result), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html: cannot write {target}: {error.strerror}", "html") from None


def render(result: Result) -> str:
    """The page's text."""
    source = files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return template.render(
        result=result,
        meaning=words.meaning(result),
        caution=words.caution(result),
        limits=list(words.limits(result)),
        parts=PARTS,
        series=[(CSS[name], name) for name in ALLOCATORS if any(_named(result, name))],
        sections=[_section(result, workload) for workload in result.workloads],
        roofline=_roofline(result),
        percentile=percentile,
    )


def _named(result: Result, name: str) -> Iterator[bool]:
    return (run.allocator == name for run in result.runs)


def _section(result: Result, workload: Workload) -> dict[str, Any]:
    runs = list(result.of(workload.name).values())
    return {
        "workload": workload,
        "runs": runs,
        "memory": charts.stacked([_memory(run) for run in runs], f"KV memory on {workload.name}"),
        "speed": charts.bars(
            [
                (
                    CSS[run.allocator],
                    run.allocator,
                    f"{run.output_tokens_per_s:.0f} tokens/s, batch {run.mean_batch:.1f}",
                    run.output_tokens_per_s,
                )
                for run in runs
            ],
            f"Throughput on {workload.name}",
        ),
        "batch": charts.plot(
            [Series(run.allocator, CSS[run.allocator], _over_time(run)) for run in runs],
            f"Sequences at once on {workload.name}",
            "seconds",
            "sequences at once",
        ),
    }


def _memory(run: Run) -> tuple[str, str, list[tuple[str, str, float]]]:
    shares = run.memory.shares()
    parts = [(css, what, max(0.0, shares[css])) for css, what in PARTS]
    return run.allocator, f"{100 * run.kv_utilization:.1f} % of what is used", parts


def _over_time(run: Run) -> charts.Points:
    """Sequences at once by seconds, as stairs; of many steps only some."""
    stride = max(1, len(run.steps) // MOST_STAIRS)
    now, points = 0.0, list[tuple[float, float]]()
    for i, step in enumerate(run.steps):
        if i % stride == 0:
            points += [(now, points[-1][1] if points else 0.0), (now, float(step.num_seqs))]
        now += step.seconds
    return [*points, (now, points[-1][1]), (now, 0.0)] if points else []


def _roofline(result: Result) -> Any:
    """Tokens/s of decoding by batch as fitted, and where each allocator stands on it."""
    line = result.roofline
    if line is None:
        return None
    most = max(run.peak_batch for run in result.runs)
    curve = [(float(n), n / (line.fixed + line.each * n)) for n in range(1, most + 1)]
    limit = [(0.0, 1 / line.each), (float(most), 1 / line.each)]
    dots = [
        Series(
            f"{run.allocator}, {run.workload}: batch {run.mean_batch:.1f}",
            CSS[run.allocator],
            [(run.mean_batch, run.mean_batch / (line.fixed + line.each * run.mean_batch))],
            dots=True,
        )
        for run in result.runs
    ]
    series = [Series("as fitted", "curve", [(0.0, 0.0), *curve]), Series("limit", "limit", limit)]
    return charts.plot(
        [*series, *dots], "Decode tokens per second by batch", "sequences at once", "tokens/s"
    )

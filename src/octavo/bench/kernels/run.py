"""`octavo bench kernels`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from octavo.bench import report
from octavo.bench.kernels.shapes import SHAPES, ModelShape
from octavo.bench.options import KernelOptions, OutputOptions, parse_ints, parse_names
from octavo.bench.progress import Bar
from octavo.config import DeviceConfig
from octavo.errors import ConfigError

GROUPS = ("linear", "attention", "elementwise")


def bench_kernels(options: KernelOptions, output: OutputOptions) -> dict[str, Any]:
    """Measure, print, and give the result. Raises ConfigError where there are no native kernels."""
    groups = parse_names("kernels", options.kernels, GROUPS)
    models = parse_names("models", options.models, tuple(SHAPES))
    report.check_json(output.json)
    try:
        from octavo.bench.kernels.peaks import PeakMeter
        from octavo.ops.cpu import CpuOps
    except ImportError as error:
        raise ConfigError(f"the native CPU kernels are not installed: {error}") from None
    threads = DeviceConfig(threads=options.threads).num_threads
    try:
        ops = CpuOps(threads, options.isa or "")
    except ValueError as error:
        raise ConfigError(str(error), "isa") from None
    shapes = [SHAPES[name] for name in models]
    result: dict[str, Any] = {"machine": report.machine()}
    meter = PeakMeter(ops._context, options.min_seconds)
    if options.paged_vs_contiguous:
        result["paged"] = list(_paged(ops, shapes, options, output))
    else:
        jobs = _jobs(ops, shapes, groups, options)
        measured = []
        with Bar("kernels", len(jobs), not output.disable_tqdm) as bar:
            for job in jobs:
                measured += list(job)
                meter.sample()
                bar.advance()
        result["kernels"] = [one.figures(meter.peaks) for one in measured]
    result["peaks"] = dataclasses.asdict(meter.peaks)
    result["machine"]["load_average_after"] = report.machine()["load_average"]
    report.write_json(output.json, result)
    if output.json != "-":
        _show(result)
    return result


def _jobs(
    ops: Any, shapes: list[ModelShape], groups: tuple[str, ...], options: KernelOptions
) -> list[Iterator[Any]]:
    """Measurements, not begun yet. Raises ConfigError."""
    from octavo.bench.kernels.attention import attention_results
    from octavo.bench.kernels.elementwise import elementwise_results
    from octavo.bench.kernels.linear import linear_results
    from octavo.bench.kernels.weights import TYPES

    types = parse_names("types", options.types, TYPES)
    rows = parse_ints("rows", options.rows)
    contexts, batches = (
        parse_ints("contexts", options.contexts),
        parse_ints("batches", options.batches),
    )
    often = (options.min_seconds, options.rounds)
    jobs: list[Iterator[Any]] = []
    for shape in shapes:
        if "linear" in groups:
            jobs += [linear_results(ops, shape, type, rows, *often) for type in types]
        if "attention" in groups:
            jobs.append(attention_results(ops, shape, contexts, batches, *often))
        if "elementwise" in groups:
            jobs.append(elementwise_results(ops, shape, rows, *often))
    return jobs


def _paged(
    ops: Any, shapes: list[ModelShape], options: KernelOptions, output: OutputOptions
) -> Iterator[dict[str, Any]]:
    from octavo.bench.kernels.paged import paged_results

    contexts = parse_ints("contexts", options.contexts)
    batches = parse_ints("batches", options.batches)
    total = len(shapes) * len(contexts) * len(batches)
    with Bar("paged and contiguous", total, not output.disable_tqdm) as bar:
        for shape in shapes:
            often = (options.min_seconds, options.rounds)
            for found in paged_results(ops, shape, contexts, batches, *often):
                yield found
                bar.advance()


def _show(result: dict[str, Any]) -> None:
    peaks, machine = result["peaks"], result["machine"]
    print(
        f"{machine['cpu']}, {peaks['threads']} threads, {peaks['isa']}; load average "
        f"{machine['load_average']} to {machine['load_average_after']}\n"
        f"peaks: read {peaks['read'] / 1e9:.1f} GB/s; "
        f"float32 FMA {peaks['fma'] / 1e9:.0f} GFLOP/s; "
        f"integer {peaks['dot'] / 1e9:.0f} GOP/s ({peaks['dot_name']})\n"
    )
    if "paged" in result:
        head = ("model", "context", "batch", "contiguous us", "paged us", "ratio", "low", "high")
        rows = [
            [r["model"], str(r["context"]), str(r["batch"]), f"{r['contiguous_us']:.1f}",
             f"{r['paged_us']:.1f}", f"{r['ratio']:.3f}", f"{r['low']:.3f}", f"{r['high']:.3f}"]
            for r in result["paged"]
        ]  # fmt: skip
        report.table("Contiguous / paged: 1 is no cost of paging, less is a cost", head, rows)
        return
    head = ("model", "what", "rows", "us", "GB/s", "% of read", "GOP/s", "% of peak")
    for group in GROUPS:
        rows = [_row(r) for r in result["kernels"] if r["kernel"] == group]
        if rows:
            report.table(group, head, rows)


def _row(r: dict[str, Any]) -> list[str]:
    has_ops = r["gop_per_s"] > 0
    return [
        r["model"],
        r["what"],
        str(r["rows"]),
        f"{r['us']:.1f}",
        f"{r['gb_per_s']:.2f}",
        f"{r['read_pct']:.0f}",
        f"{r['gop_per_s']:.1f}" if has_ops else "-",
        f"{r['ops_pct']:.0f}" if has_ops else "-",
    ]

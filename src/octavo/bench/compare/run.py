"""`octavo bench compare`: every allocator in turn, on the same requests in the same memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from octavo.bench import report
from octavo.bench.compare import workloads
from octavo.bench.compare.measure import ALLOCATORS, Run, measure
from octavo.bench.compare.overhead import CASES, Overhead, measure_case
from octavo.bench.compare.page import write_page
from octavo.bench.compare.result import Result
from octavo.bench.compare.show import show
from octavo.bench.compare.workloads import Draw, Workload
from octavo.bench.offline.model import Model
from octavo.bench.options import CompareOptions, OutputOptions, parse_names
from octavo.bench.progress import Bar
from octavo.bench.workload.sample import Tokenizer
from octavo.errors import ConfigError, EngineError
from octavo.models.checkpoint import open_checkpoint
from octavo.models.fetch import resolve_model

Start = Callable[[Mapping[str, Any]], Model]
"""An engine over the same weights, from changes to the settings."""


def bench_compare(
    start: Start,
    settings: Mapping[str, Any],
    tokenizer: Callable[[], Tokenizer],
    options: CompareOptions,
    output: OutputOptions,
) -> dict[str, Any]:
    """Run, print, write, and give the result. Raises EngineError if any allocator changes tokens.

    `settings` are those of the engine, by name.
    """
    report.check_json(output.json)
    report.check_json(options.html, "html")
    names = parse_names("allocators", options.allocators, tuple(ALLOCATORS))
    spec = open_checkpoint(resolve_model(settings["model"])).spec
    limit = settings["max_model_len"] or spec.max_position
    chosen = []
    for name in options.workload:
        draw = Draw(f"{name} {settings['seed']}", spec.vocab_size, limit)
        chosen.append(workloads.load(name, options.num_prompts, draw, tokenizer))
    size = _size(settings, options, chosen, spec.max_position)
    num_parts = options.repeats * len(names) * len(chosen) + len(CASES) * options.overhead
    with Bar("compare", num_parts, not output.disable_tqdm) as bar:
        with closing(start(size)) as first:
            built = first.built  # its weights are those of all others
        runs = [
            run
            for workload in chosen
            for run in _runs(start, size, names, workload, options.repeats, bar)
        ]
        overheads = _overheads(start, built.limits, settings, options, bar)
    result = Result(
        model=built.model_names[0],
        max_model_len=built.limits.max_model_len,
        num_blocks=built.limits.num_kv_blocks,
        block_size=built.limits.block_size,
        kv_bytes=built.kv_size.num_bytes,
        workloads=tuple(chosen),
        runs=tuple(runs),
        overheads=tuple(overheads),
        machine=report.machine(),
    )
    found = result.as_json()
    report.write_json(output.json, found)
    if options.html is not None:
        write_page(options.html, result)
    if output.json != "-":
        show(result)
    if result.differing:
        raise EngineError(f"other tokens than {names[0]} gives: {', '.join(result.differing)}")
    return found


def _size(
    settings: Mapping[str, Any],
    options: CompareOptions,
    chosen: Sequence[Workload],
    max_position: int,
) -> dict[str, Any]:
    """The settings that say how long requests may be and how many of them the memory holds."""
    longest = max(chosen, key=lambda workload: workload.longest)
    length = settings["max_model_len"]
    if length is None:
        length = min(1 << (longest.longest - 1).bit_length(), max_position)
    if longest.longest > length:
        raise ConfigError(
            f"--max-model-len: a request of {longest.name} has {longest.longest} tokens, expected "
            f"at most {length}",
            "max_model_len",
        )
    size: dict[str, Any] = {"max_model_len": length}
    if settings["num_kv_blocks"] is None and settings["kv_cache_memory_bytes"] is None:
        blocks = -(-length // settings["block_size"])
        size["num_kv_blocks"] = options.full_length_requests * blocks
    return size


def _runs(
    start: Start,
    size: dict[str, Any],
    names: Sequence[str],
    workload: Workload,
    repeats: int,
    bar: Bar,
) -> list[Run]:
    """Of each allocator the run with the median time; runs are taken in turns."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            gc.collect()  # the KV memory of the engine before this one
            with closing(start({**ALLOCATORS[name], **size})) as llm:
                runs[name].append(measure(llm, name, workload))
            bar.advance(f"{workload.name}, {name}")
    return [sorted(each, key=lambda run: run.elapsed)[repeats // 2] for each in runs.values()]


def _overheads(
    start: Start, limits: Any, settings: Mapping[str, Any], options: CompareOptions, bar: Bar
) -> list[Overhead]:
    found = []
    for case in CASES if options.overhead else ():
        found.append(
            measure_case(
                case,
                start,
                options.turns,
                limits.vocab_size,
                limits.max_model_len,
                limits.block_size,
                settings["seed"],
            )
        )
        bar.advance(case.name)
    return found

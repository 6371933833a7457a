"""The comparison as tables on standard output."""

from __future__ import annotations

from octavo.bench import report
from octavo.bench.compare import words
from octavo.bench.compare.measure import Run
from octavo.bench.compare.result import Result
from octavo.bench.stats import percentile, summarise

MEMORY = ("allocator", "tokens/used", "used", "internal", "external", "batch", "peak")
SPEED = (
    "allocator", "tokens/s", "x", "TTFT mean", "p50", "p99", "latency mean", "p50", "p99",
)  # fmt: skip


def show(result: Result) -> None:
    """Print it all."""
    size = result.num_blocks * result.block_size
    print(
        f"{result.model}: {result.num_blocks:,} KV blocks = {size:,} tokens = {result.num_full:g} "
        f"requests of {result.max_model_len:,} tokens\n"
    )
    for workload in result.workloads:
        runs = list(result.of(workload.name).values())
        what = (
            f"{workload.name}: {len(workload.samples)} requests, "
            f"{workload.num_prompt_tokens:,} + {workload.num_output_tokens:,} tokens"
        )
        report.table(f"{what}. Memory, % (used: of all of it)", MEMORY, map(_memory, runs))
        slowest = min(run.output_tokens_per_s for run in runs)
        report.table("Speed; times in seconds", SPEED, [_speed(run, slowest) for run in runs])
    if result.overheads:
        rows = [
            [o.case, f"{o.paged:.1f}", f"{o.contiguous:.1f}", f"{o.ratio:.3f}",
             f"{o.least:.3f}", f"{o.greatest:.3f}"]
            for o in result.overheads
        ]  # fmt: skip
        head = ("case", "paged tokens/s", "contiguous", "ratio", "least", "greatest")
        report.table("Where paging cannot pay", head, rows)
    for text in words.limits(result):
        print(text)
    print()
    for text in words.meaning(result):
        print(text)
    if caution := words.caution(result):
        print(caution)


def _memory(run: Run) -> list[str]:
    memory = run.memory
    return [
        run.allocator,
        f"{100 * run.kv_utilization:.1f}",
        f"{100 * memory.reserved / memory.total:.1f}",
        f"{100 * memory.never / memory.total:.1f}",
        f"{100 * memory.external / memory.total:.1f}",
        f"{run.mean_batch:.2f}",
        str(run.peak_batch),
    ]


def _speed(run: Run, slowest: float) -> list[str]:
    cells = [
        run.allocator,
        f"{run.output_tokens_per_s:.1f}",
        f"{run.output_tokens_per_s / slowest:.2f}",
    ]
    for times in (run.ttft, run.latency):
        found = summarise(times)
        cells += [f"{v:.2f}" for v in (found.mean, found.median, percentile(times, 99))]
    return cells

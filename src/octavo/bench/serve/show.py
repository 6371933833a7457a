"""The result of a run as a block of lines, in the layout that `vllm bench serve` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octavo.bench.stats import percentile_name

WIDTH = 50

TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}


def lines(
    result: Mapping[str, Any], metrics: Sequence[str], percentiles: Sequence[float]
) -> Iterator[str]:
    """The block, line by line."""
    yield _title("Serving Benchmark Result", "=")
    yield _line("Successful requests:", result["completed"])
    yield _line("Failed requests:", result["failed"])
    if result.get("max_concurrency") is not None:
        yield _line("Maximum request concurrency:", result["max_concurrency"])
    if isinstance(result.get("request_rate"), float):
        yield _line("Request rate configured (RPS):", result["request_rate"])
    yield _line("Benchmark duration (s):", result["duration"])
    yield _line("Total input tokens:", result["total_input_tokens"])
    if "total_cached_tokens" in result:
        yield _line("Cached input tokens:", result["total_cached_tokens"])
    yield _line("Total generated tokens:", result["total_output_tokens"])
    yield _line("Request throughput (req/s):", float(result["request_throughput"]))
    if "request_goodput" in result:
        yield _line("Request goodput (req/s):", float(result["request_goodput"]))
    yield _line("Output token throughput (tok/s):", float(result["output_throughput"]))
    yield _line("Peak output token throughput (tok/s):", float(result["max_output_tokens_per_s"]))
    yield _line("Peak concurrent requests:", result["max_concurrent_requests"])
    yield _line("Total Token throughput (tok/s):", float(result["total_token_throughput"]))
    for name in metrics:
        short = name.upper()
        yield _title(TITLES[name], "-")
        yield _line(f"Mean {short} (ms):", float(result[f"mean_{name}_ms"]))
        yield _line(f"Median {short} (ms):", float(result[f"median_{name}_ms"]))
        for which in percentiles:
            p = percentile_name(which)
            yield _line(f"{p.upper()} {short} (ms):", float(result[f"{p}_{name}_ms"]))
    yield "=" * WIDTH


def _title(text: str, fill: str) -> str:
    padded = f" {text} " if fill == "=" else text
    return f"{padded:{fill}^{WIDTH}}"


def _line(name: str, value: float | int) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{name:<40} {shown:<10}".rstrip()

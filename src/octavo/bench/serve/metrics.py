"""Outcomes of a run -> the fields of its result. Names as in `vllm bench serve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.bench.serve.outcome import Outcome
from octavo.bench.stats import percentile_name, summarise

METRICS = ("ttft", "tpot", "itl", "e2el")


def values_of(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """The four lists of times, in seconds, of requests that succeeded."""
    return {
        "ttft": [o.ttft for o in outcomes],
        "tpot": [o.tpot for o in outcomes if o.tpot is not None],
        "itl": [gap for o in outcomes for gap in o.itl],
        "e2el": [o.latency for o in outcomes],
    }


def figures(
    outcomes: Sequence[Outcome], duration: float, percentiles: Sequence[float]
) -> dict[str, Any]:
    """Throughputs per second of `duration` (seconds), and each metric's figures in ms.

    Requests that failed count as failed and nowhere else.
    """
    good = [o for o in outcomes if o.error is None]
    num_in, num_out = sum(o.prompt_len for o in good), sum(o.output_len for o in good)
    result: dict[str, Any] = {
        "duration": duration,
        "completed": len(good),
        "failed": len(outcomes) - len(good),
        "total_input_tokens": num_in,
        "total_output_tokens": num_out,
        "request_throughput": len(good) / duration,
        "output_throughput": num_out / duration,
        "total_token_throughput": (num_in + num_out) / duration,
        "max_output_tokens_per_s": peak_tokens_per_second(good),
        "max_concurrent_requests": max_in_flight(outcomes),
    }
    cached = [o.num_cached for o in good if o.num_cached is not None]
    if cached:
        result["total_cached_tokens"] = sum(cached)
    for name, values in values_of(good).items():
        s = summarise([1000 * v for v in values], percentiles)
        result[f"mean_{name}_ms"] = s.mean
        result[f"median_{name}_ms"] = s.median
        result[f"std_{name}_ms"] = s.std
        for which, value in s.percentiles:
            result[f"{percentile_name(which)}_{name}_ms"] = value
    return result


def details(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """One entry for each request, in the order they were sent; times in seconds."""
    return {
        "input_lens": [o.prompt_len for o in outcomes],
        "output_lens": [o.output_len for o in outcomes],
        "start_times": [o.started for o in outcomes],
        "ttfts": [o.ttft for o in outcomes],
        "itls": [o.itl for o in outcomes],
        "generated_texts": [o.text for o in outcomes],
        "errors": [o.error or "" for o in outcomes],
    }


def max_in_flight(outcomes: Sequence[Outcome]) -> int:
    """The most requests that were open at one moment."""
    events = [(o.started, 1) for o in outcomes] + [(o.started + o.latency, -1) for o in outcomes]
    now = most = 0
    for _, change in sorted(events):  # at equal times the end comes first
        now += change
        most = max(most, now)
    return most


def peak_tokens_per_second(outcomes: Sequence[Outcome]) -> float:
    """The most chunks of output within one second of the clock, counted from the first request."""
    if not outcomes:
        return 0.0
    begin = min(o.started for o in outcomes)
    buckets: dict[int, int] = {}
    for o in outcomes:
        now = o.started + o.ttft - begin
        for gap in (0.0, *o.itl):
            now += gap
            buckets[int(now)] = buckets.get(int(now), 0) + 1
    return float(max(buckets.values()))

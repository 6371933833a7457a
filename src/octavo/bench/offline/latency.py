"""`octavo bench latency`: the time of one batch. Fields as in `vllm bench latency`."""

from __future__ import annotations

import time
from typing import Any

from octavo.bench import report
from octavo.bench.offline.model import Model, complete, params_for
from octavo.bench.options import DatasetOptions, LatencyOptions, OutputOptions
from octavo.bench.progress import Bar
from octavo.bench.stats import percentile, summarise
from octavo.bench.workload.load import load_samples

PERCENTILES = (10, 25, 50, 75, 90, 99)


def bench_latency(llm: Model, options: LatencyOptions, output: OutputOptions) -> dict[str, Any]:
    """Run, print, and give the result: seconds of each batch, of new prompts each time."""
    report.check_json(output.json)
    vocab_size = llm.built.limits.vocab_size
    rounds = options.num_iters_warmup + options.num_iters
    dataset = DatasetOptions(
        num_prompts=options.batch_size * rounds,
        random_input_len=options.input_len,
        random_output_len=options.output_len,
        vocab_size=vocab_size,
    )
    samples = load_samples(dataset, seed=0)
    latencies = []
    with Bar("batches", rounds, not output.disable_tqdm) as bar:
        for i in range(rounds):
            batch = samples[i * options.batch_size : (i + 1) * options.batch_size]
            params = params_for(batch, options.n)
            begin = time.perf_counter()
            complete(llm, batch, params)
            if i >= options.num_iters_warmup:
                latencies.append(time.perf_counter() - begin)
            bar.advance()
    new_tokens = options.batch_size * options.n * options.output_len
    summary = summarise(latencies)
    result: dict[str, Any] = {
        "avg_latency": summary.mean,
        "latencies": latencies,
        "percentiles": {str(p): percentile(latencies, p) for p in PERCENTILES},
        "output_throughput": new_tokens / summary.mean,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "batch_size": options.batch_size,
        "machine": report.machine(),
    }
    report.write_json(output.json, result)
    if output.json != "-":
        rows = [["average", f"{summary.mean:.4f}"]]
        rows += [[f"{p}% percentile", f"{v:.4f}"] for p, v in result["percentiles"].items()]
        title = (
            f"{options.batch_size} requests, {options.input_len} + {options.output_len} tokens: "
            f"{result['output_throughput']:.1f} new tokens/s"
        )
        report.table(title, ("latency", "seconds"), rows)
    return result

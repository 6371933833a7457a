"""`octavo bench throughput`: a workload, all at once. Fields as in `vllm bench throughput`."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from octavo.bench import report
from octavo.bench.offline.model import Model, complete, params_for
from octavo.bench.options import DatasetOptions, OutputOptions
from octavo.bench.workload.load import load_samples
from octavo.bench.workload.sample import Tokenizer


def bench_throughput(
    llm: Model, tokenizer: Tokenizer, dataset: DatasetOptions, output: OutputOptions, seed: int = 0
) -> dict[str, Any]:
    """Run, print, and give the result. Arrival times of a trace are not kept: all is there at
    once."""
    report.check_json(output.json)
    if dataset.vocab_size is None:
        dataset = dataclasses.replace(dataset, vocab_size=llm.built.limits.vocab_size)
    samples = load_samples(dataset, seed, tokenizer)
    params = params_for(samples)
    begin = time.perf_counter()
    outputs = complete(llm, samples, params, show=not output.disable_tqdm)
    elapsed = time.perf_counter() - begin
    num_in = sum(len(o.prompt_token_ids) for o in outputs)
    num_out = sum(len(choice.token_ids) for o in outputs for choice in o.outputs)
    result: dict[str, Any] = {
        "elapsed_time": elapsed,
        "num_requests": len(outputs),
        "total_num_tokens": num_in + num_out,
        "total_input_tokens": num_in,
        "total_output_tokens": num_out,
        "total_cached_tokens": sum(o.num_cached_tokens for o in outputs),
        "requests_per_second": len(outputs) / elapsed,
        "tokens_per_second": (num_in + num_out) / elapsed,
        "output_tokens_per_second": num_out / elapsed,
        "machine": report.machine(),
    }
    report.write_json(output.json, result)
    if output.json != "-":
        rows = [
            ["requests", str(len(outputs)), f"{result['requests_per_second']:.2f}"],
            ["prompt tokens", str(num_in), f"{num_in / elapsed:.2f}"],
            ["of them cached", str(result["total_cached_tokens"]), ""],
            ["new tokens", str(num_out), f"{result['output_tokens_per_second']:.2f}"],
            ["all tokens", str(num_in + num_out), f"{result['tokens_per_second']:.2f}"],
        ]
        report.table(f"{elapsed:.2f} seconds", ("what", "count", "per second"), rows)
    return result

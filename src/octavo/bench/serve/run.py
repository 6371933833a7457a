"""A run: wait for the server, warm up, send all requests at their times, collect."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from octavo.bench import report
from octavo.bench.http.client import HttpClient
from octavo.bench.options import DatasetOptions, OutputOptions, ServeOptions
from octavo.bench.progress import Bar
from octavo.bench.serve import show
from octavo.bench.serve.goodput import num_good, parse_goodput
from octavo.bench.serve.metrics import METRICS, details, figures
from octavo.bench.serve.outcome import Outcome
from octavo.bench.serve.ready import ready_model
from octavo.bench.serve.sender import Sender, parse_extra, parse_headers
from octavo.bench.stats import parse_percentiles
from octavo.bench.workload.arrivals import arrival_times
from octavo.bench.workload.load import as_text, load_samples
from octavo.bench.workload.sample import Sample, Tokenizer
from octavo.errors import ConfigError, EngineError


def bench_serve(
    options: ServeOptions,
    dataset: DatasetOptions,
    output: OutputOptions,
    seed: int = 0,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
    """Run, print, and give the result. Raises ConfigError, or EngineError if nothing came of it."""
    percentiles = parse_percentiles(options.metric_percentiles)
    metrics = _metrics(options.percentile_metrics)
    limits = parse_goodput(options.goodput)
    parse_extra(options.extra_body)  # refused now, not after the wait for a server
    report.check_json(output.json)
    samples = _samples(options, load_samples(dataset, seed, tokenizer), tokenizer)
    times = arrival_times(samples, options.request_rate, options.burstiness, seed)
    model, outcomes, duration = asyncio.run(_run(options, samples, times, output))
    result = _settings(options, dataset, model, len(samples))
    result |= figures(outcomes, duration, percentiles)
    if limits:
        result["request_goodput"] = num_good(outcomes, limits) / duration
    if options.save_detailed:
        result |= details(outcomes)
    report.write_json(output.json, result)
    if output.json != "-":
        print("\n".join(show.lines(result, metrics, percentiles)))
    _tell_errors(outcomes)
    return result


def _metrics(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(name in METRICS for name in names):
        raise ConfigError(
            f"--percentile-metrics: expected some of {', '.join(METRICS)}, got {text!r}",
            "percentile_metrics",
        )
    return names


def _samples(
    options: ServeOptions, samples: list[Sample], tokenizer: Tokenizer | None
) -> list[Sample]:
    """The samples in the form that goes over the wire."""
    has_ids = any(not isinstance(s.prompt, str) for s in samples)
    is_chat = options.backend == "openai-chat"
    if is_chat and options.prompt_format == "ids":
        raise ConfigError("--prompt-format: chat takes text, got ids", "prompt_format")
    if has_ids and (is_chat or options.prompt_format == "text"):
        if tokenizer is None:
            raise ConfigError("--tokenizer: needed to make text of token ids", "tokenizer")
        return as_text(samples, tokenizer)
    return samples


def _settings(
    options: ServeOptions, dataset: DatasetOptions, model: str, num_prompts: int
) -> dict[str, Any]:
    rate: float | str | None = options.request_rate
    if rate is None and dataset.dataset_name == "trace":
        rate = "trace"
    elif rate is None or rate == float("inf"):
        rate = "inf"
    return {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "label": options.label,
        "backend": options.backend,
        "model_id": model,
        "tokenizer_id": options.tokenizer,
        "dataset_name": dataset.dataset_name,
        "num_prompts": num_prompts,
        "request_rate": rate,
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
        "machine": report.machine(),
    }


async def _run(
    options: ServeOptions, samples: Sequence[Sample], times: Sequence[float], output: OutputOptions
) -> tuple[str, list[Outcome], float]:
    """The model's name, the outcomes in the order of the samples, and the seconds that all took."""
    url = options.base_url or f"http://{options.host}:{options.port}"
    async with HttpClient(url, parse_headers(options)) as client:
        model = await ready_model(client, options.model, options.ready_check_timeout_sec)
        sender = Sender(client, options, model)
        await _warm_up(sender, samples, options)
        gate = asyncio.Semaphore(options.max_concurrency or len(samples))
        with Bar("requests", len(samples), not output.disable_tqdm) as bar:

            async def one(sample: Sample) -> Outcome:
                async with gate:
                    outcome = await sender.send(sample)
                bar.advance()
                return outcome

            begin = time.perf_counter()
            tasks = []
            for sample, at in zip(samples, times, strict=True):
                left = begin + at - time.perf_counter()
                if left > 0:
                    await asyncio.sleep(left)
                tasks.append(asyncio.create_task(one(sample)))
            outcomes = await asyncio.gather(*tasks)
            return model, outcomes, time.perf_counter() - begin


async def _warm_up(sender: Sender, samples: Sequence[Sample], options: ServeOptions) -> None:
    """Requests that do not count. Raises EngineError if one fails: then all would."""
    for i in range(options.num_warmups):
        outcome = await sender.send(_other(samples[i % len(samples)]))
        if outcome.error is not None:
            raise EngineError(f"the warm-up request to {sender.path} failed: {outcome.error}")


def _other(sample: Sample) -> Sample:
    """As long as `sample`, but with another beginning: a warm-up must not fill the prefix cache for
    the run."""
    prompt = sample.prompt
    turned = " ".join(prompt.split()[::-1]) if isinstance(prompt, str) else prompt[::-1]
    return Sample(turned or prompt, min(sample.output_len, 16))


def _tell_errors(outcomes: Sequence[Outcome]) -> None:
    """Errors on stderr, the most frequent first. Raises EngineError if every request failed."""
    errors = Counter(o.error for o in outcomes if o.error is not None)
    for text, count in errors.most_common(5):
        print(f"{count} requests failed: {text}", file=sys.stderr)
    if errors and errors.total() == len(outcomes):
        raise EngineError("every request failed")

"""GET /metrics: what the engine counts, read at scrape time, and histograms fed as requests end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.engine.stats import RequestTimes
from octavo.sched.plan import StepPlan
from octavo.server.interfaces import ServingEngine
from octavo.server.metric_names import ENGINE_NUMBERS, HISTOGRAMS, LABELLED_NUMBERS

PREFIX = "octavo_"
FINISH_REASONS = ("stop", "length", "abort", "error")


class EngineCollector(Collector):
    """EngineStats as metrics, one snapshot per scrape."""

    def __init__(self, engine: ServingEngine, model_name: str) -> None:
        self._engine = engine
        self._model = model_name

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        stats = self._engine.stats()
        for name, kind, field, text in ENGINE_NUMBERS:
            family = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
            metric = family(PREFIX + name, text, labels=["model_name"])
            metric.add_metric([self._model], getattr(stats, field))
            yield metric
        for name, kind, labels, fields, text in LABELLED_NUMBERS:
            family = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
            metric = family(PREFIX + name, text, labels=["model_name", *labels])
            for values, field in fields.items():
                metric.add_metric([self._model, *values], getattr(stats, field))
            yield metric
        usage = GaugeMetricFamily(
            PREFIX + "kv_cache_usage_perc",
            "share of the KV blocks that requests use, 0 to 1; cached blocks are not in use",
            labels=["model_name"],
        )
        usage.add_metric([self._model], stats.num_blocks_used / max(stats.num_blocks_total, 1))
        yield usage


class Metrics:
    """One registry for one app; `attach` makes the engine report to it."""

    def __init__(
        self, engine: ServingEngine, model_name: str, cache_info: Mapping[str, str]
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._model = model_name
        self.registry.register(EngineCollector(engine, model_name))
        ProcessCollector(registry=self.registry)
        self._histograms = {
            name: Histogram(
                PREFIX + name, text, ["model_name"], buckets=buckets, registry=self.registry
            ).labels(model_name)
            for name, (buckets, text) in HISTOGRAMS.items()
        }
        self._finished = Counter(
            PREFIX + "request_success",
            "requests that ended, by reason",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        for reason in FINISH_REASONS:
            self._finished.labels(model_name, reason)
        self.http_requests = Counter(
            "http_requests",
            "HTTP requests answered",
            ["method", "handler", "status"],
            registry=self.registry,
        )
        info = Info(PREFIX + "cache_config", "the KV cache's settings", registry=self.registry)
        limits = engine.limits
        info.info(
            {
                "model_name": model_name,
                "block_size": str(limits.block_size),
                "num_kv_blocks": str(limits.num_kv_blocks),
                "max_model_len": str(limits.max_model_len),
                **cache_info,
            }
        )

    def attach(self, engine: ServingEngine) -> None:
        """Be told of every step and every ended request."""
        engine.core.on_step = self.observe_step
        engine.core.on_finished = self.observe_finished

    def observe_step(self, plan: StepPlan, seconds: float) -> None:
        """A step was executed."""
        self._histograms["iteration_tokens_total"].observe(plan.num_tokens)

    def observe_finished(self, times: RequestTimes) -> None:
        """A request ended; an aborted one may lack the later times."""
        seen = self._histograms
        reason = times.finish_reason or "abort"
        self._finished.labels(self._model, reason).inc()
        spans = {
            "time_to_first_token_seconds": (times.arrival, times.first_token),
            "e2e_request_latency_seconds": (times.arrival, times.last_token),
            "request_queue_time_seconds": (times.arrival, times.first_scheduled),
            "request_prefill_time_seconds": (times.first_scheduled, times.first_token),
            "request_decode_time_seconds": (times.first_token, times.last_token),
            "request_inference_time_seconds": (times.first_scheduled, times.last_token),
        }
        for name, (begin, end) in spans.items():
            if begin is not None and end is not None:
                seen[name].observe(end - begin)
        for seconds in times.inter_token:
            seen["inter_token_latency_seconds"].observe(seconds)
        params = times.params
        seen["request_prompt_tokens"].observe(times.num_prompt_tokens)
        seen["request_generation_tokens"].observe(times.num_generation_tokens)
        seen["request_params_n"].observe(params.n)
        if params.max_tokens is not None:
            seen["request_params_max_tokens"].observe(params.max_tokens)
            seen["request_max_num_generation_tokens"].observe(params.max_tokens)

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)

"""One workload on one allocator: what is measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from octavo.bench.compare.meter import Memory, Step, mean_memory, metering
from octavo.bench.compare.workloads import Workload
from octavo.bench.offline.model import Model, complete, params_for
from octavo.bench.stats import percentile, summarise
from octavo.bench.workload.sample import Sample

ALLOCATORS: dict[str, dict[str, Any]] = {
    "contiguous-max": {"kv_allocator": "contiguous-max"},
    "contiguous-pow2": {"kv_allocator": "contiguous-pow2"},
    "contiguous-oracle": {"kv_allocator": "contiguous-oracle"},
    "paged-no-sharing": {"enable_prefix_caching": False},
    "paged": {},
}
"""Name -> settings of octavo.LLM."""

WARM_UP = Sample((3, 4, 5, 6), 4)


@dataclass(frozen=True, slots=True)
class Run:
    """One workload on one allocator. Times are in seconds; of requests since they all arrived."""

    allocator: str
    workload: str
    elapsed: float
    num_output_tokens: int
    num_computed_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    ttft: tuple[float, ...]
    latency: tuple[float, ...]
    steps: tuple[Step, ...]
    tokens: tuple[tuple[int, ...], ...]

    @property
    def memory(self) -> Memory:
        """Mean over the steps."""
        return mean_memory(self.steps)

    @property
    def kv_utilization(self) -> float:
        """Share of the memory in use that holds tokens."""
        return self.memory.tokens / max(1.0, self.memory.reserved)

    @property
    def mean_batch(self) -> float:
        """Sequences in a step."""
        return sum(s.num_seqs for s in self.steps) / max(1, len(self.steps))

    @property
    def peak_batch(self) -> int:
        """Most sequences in a step."""
        return max((s.num_seqs for s in self.steps), default=0)

    @property
    def output_tokens_per_s(self) -> float:
        """Throughput."""
        return self.num_output_tokens / self.elapsed

    def as_json(self) -> dict[str, Any]:
        """What --json shows. Shares of memory are of the whole KV memory but for kv_utilization."""
        memory = self.memory
        shares = memory.shares()
        return {
            "allocator": self.allocator,
            "workload": self.workload,
            "kv_utilization": self.kv_utilization,
            "kv_reserved": memory.reserved / memory.total,
            "kv_tokens": shares["tokens"],
            "kv_reserved_for_later": shares["later"],
            "internal_fragmentation": shares["never"],
            "external_fragmentation": shares["external"],
            "kv_free": shares["free"],
            "mean_batch": self.mean_batch,
            "peak_batch": self.peak_batch,
            "output_tokens_per_s": self.output_tokens_per_s,
            "ttft_s": _summary(self.ttft),
            "latency_s": _summary(self.latency),
            "elapsed_s": self.elapsed,
            "num_requests": len(self.latency),
            "num_steps": len(self.steps),
            "output_tokens": self.num_output_tokens,
            "computed_tokens": self.num_computed_tokens,
            "cached_tokens": self.num_cached_tokens,
            "num_preemptions": self.num_preemptions,
        }


def _summary(seconds: tuple[float, ...]) -> dict[str, float]:
    found = summarise(seconds)
    return {"mean": found.mean, "p50": found.median, "p99": percentile(seconds, 99)}


def measure(llm: Model, allocator: str, workload: Workload) -> Run:
    """Run all requests of the workload at once. Raises EngineError if one fails."""
    complete(llm, [WARM_UP], params_for([WARM_UP]))
    core = llm.built.core
    before = core.stats()
    params = params_for(workload.samples)
    with metering(core) as meter:
        begin = time.perf_counter()
        outputs = complete(llm, workload.samples, params)
        elapsed = time.perf_counter() - begin
    core.check()
    stats, times = core.stats(), [o.metrics for o in outputs]
    return Run(
        allocator=allocator,
        workload=workload.name,
        elapsed=elapsed,
        num_output_tokens=sum(len(o.outputs[0].token_ids) for o in outputs),
        num_computed_tokens=stats.computed_tokens - before.computed_tokens,
        num_cached_tokens=sum(o.num_cached_tokens for o in outputs),
        num_preemptions=stats.num_preemptions - before.num_preemptions,
        ttft=tuple(t.first_token - t.arrival for t in times),
        latency=tuple(t.last_token - t.arrival for t in times),
        steps=tuple(meter.steps),
        tokens=tuple(tuple(o.outputs[0].token_ids) for o in outputs),
    )

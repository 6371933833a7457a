"""All that `octavo bench compare` found out, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from octavo.bench.compare import roofline
from octavo.bench.compare.measure import Run
from octavo.bench.compare.overhead import Overhead
from octavo.bench.compare.roofline import Roofline
from octavo.bench.compare.workloads import Workload

TARGETS = {"contiguous-max": 2.0, "contiguous-oracle": 1.3}
"""What the throughput of paged should be, over that of others: the claims of the vLLM paper."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Throughput of paged over that of `against`, beside what the machine allows.

    `at_most`: if memory held any number of requests and nothing were shared (None: not known).
    `met_with_requests`, `met_with_max_model_len`: a smaller KV memory (in requests of full length),
    or a longest request, with which `target` would be met; None where there is none, or no need.
    """

    workload: str
    against: str
    ratio: float
    batch: float
    batch_against: float
    target: float
    at_most: float | None = None
    met_with_requests: int | None = None
    met_with_max_model_len: int | None = None

    @property
    def is_met(self) -> bool:
        """True if paged is as much faster as was claimed."""
        return self.ratio >= self.target

    def as_json(self) -> dict[str, Any]:
        """What --json shows."""
        return {
            "workload": self.workload,
            "against": self.against,
            "throughput_ratio": self.ratio,
            "mean_batch": self.batch,
            "mean_batch_against": self.batch_against,
            "target": self.target,
            "is_met": self.is_met,
            "at_most": self.at_most,
            "met_with_full_length_requests": self.met_with_requests,
            "met_with_max_model_len": self.met_with_max_model_len,
        }


@dataclass(frozen=True)
class Result:
    """`num_full`: requests of full length that the KV memory holds."""

    model: str
    max_model_len: int
    num_blocks: int
    block_size: int
    kv_bytes: int
    workloads: tuple[Workload, ...]
    runs: tuple[Run, ...]
    overheads: tuple[Overhead, ...]
    machine: dict[str, Any]

    @property
    def num_full(self) -> float:
        """Requests of full length that the KV memory holds."""
        return self.num_blocks * self.block_size / self.max_model_len

    @cached_property
    def roofline(self) -> Roofline | None:
        """Of this machine with this model."""
        return roofline.fit(self.runs)

    def of(self, workload: str) -> dict[str, Run]:
        """The runs of one workload, by allocator."""
        return {run.allocator: run for run in self.runs if run.workload == workload}

    @property
    def differing(self) -> list[str]:
        """Runs whose tokens are not those of the first allocator; empty if all is well."""
        found = []
        for workload in self.workloads:
            runs = list(self.of(workload.name).values())
            found += [
                f"{run.allocator} on {run.workload}" for run in runs if run.tokens != runs[0].tokens
            ]
        return found

    @cached_property
    def gains(self) -> list[Gain]:
        """Of paged over others, on each workload."""
        return list(self._gains())

    def _gains(self) -> Iterator[Gain]:
        for workload in self.workloads:
            runs = self.of(workload.name)
            paged = runs.get("paged")
            for against, target in TARGETS.items():
                if paged is not None and against in runs:
                    yield self._gain(workload, paged, runs[against], target)

    def _gain(self, workload: Workload, paged: Run, other: Run, target: float) -> Gain:
        ratio = paged.output_tokens_per_s / other.output_tokens_per_s
        names = (workload.name, other.allocator)
        gain = Gain(*names, ratio, paged.mean_batch, other.mean_batch, target)
        line = self.roofline
        if line is None:
            return gain
        work = (workload.num_prompt_tokens, workload.num_output_tokens)
        at_most = line.gain(*work, batch=1e9, than=other.mean_batch)
        if gain.is_met:
            return Gain(*names, ratio, gain.batch, gain.batch_against, target, at_most)
        requests = length = None
        # The memory, and with it every batch, shrinks. (With this much, it was measured.)
        for num in range(math.ceil(self.num_full) - 1, 0, -1):
            scale = num / self.num_full
            batch, than = (max(1.0, b * scale) for b in (paged.mean_batch, other.mean_batch))
            if line.gain(*work, batch, than) >= target:
                requests = num
                break
        # The longest request grows, in the same memory: what reserves for it holds fewer.
        if other.allocator == "contiguous-max":
            times = 2
            while times <= self.num_full and length is None:
                than = max(1.0, other.mean_batch / times)
                if line.gain(*work, paged.mean_batch, than) >= target:
                    length = self.max_model_len * times
                times *= 2
        return Gain(
            *names, ratio, gain.batch, gain.batch_against, target, at_most, requests, length
        )

    def as_json(self) -> dict[str, Any]:
        """What --json shows."""
        line = self.roofline
        return {
            "model": self.model,
            "max_model_len": self.max_model_len,
            "num_kv_blocks": self.num_blocks,
            "block_size": self.block_size,
            "kv_bytes": self.kv_bytes,
            "full_length_requests": self.num_full,
            "workloads": [
                {
                    "name": w.name,
                    "num_requests": len(w.samples),
                    "prompt_tokens": w.num_prompt_tokens,
                    "output_tokens": w.num_output_tokens,
                    "longest": w.longest,
                }
                for w in self.workloads
            ],
            "runs": [run.as_json() for run in self.runs],
            "same_tokens": not self.differing,
            "gains": [gain.as_json() for gain in self.gains],
            "overhead": [case.as_json() for case in self.overheads],
            "roofline": line.as_json() if line else None,
            "machine": self.machine,
        }

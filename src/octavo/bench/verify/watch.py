"""What happened in an engine while requests ran, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from octavo.sched.plan import StepPlan

WORDS = {
    "threads": "threads",
    "steps_shared": "steps of several sequences",
    "chunks": "chunks of prompts",
    "tokens_found": "tokens found",
    "found_in_block": "requests found to within a block",
    "forks": "forks",
    "num_cow_copies": "blocks copied",
    "num_guessed_tokens": "tokens guessed",
    "num_accepted_guesses": "guesses right",
    "num_preemptions": "preemptions",
    "num_preempted_blocks": "blocks given up",
    "num_recomputed_tokens": "tokens computed again",
    "num_demoted_host": "blocks to host",
    "num_demoted_disk": "blocks to disk",
    "num_promoted_host": "blocks from host",
    "num_promoted_disk": "blocks from disk",
    "num_lost": "writes lost",
    "num_missing": "promotions failed",
}
"""Every count that is kept, and how it reads after its number."""


class Watch:
    """Beside the engines of one regime. `counts` is complete when they have ended."""

    def __init__(self, block_size: int, num_threads: int) -> None:
        self.counts = Counter(threads=num_threads)
        self._block_size = block_size

    def attach(self, core: Any) -> None:
        """Be told of every step of an engine (octavo.engine.core.EngineCore)."""
        core.on_step = self._note_step

    def _note_step(self, plan: StepPlan, seconds: float) -> None:
        self.counts["steps_shared"] += len(plan.seqs) > 1
        # A run that ends before its sequence's last known token draws nothing.
        self.counts["chunks"] += sum(not run.samples for run in plan.seqs)
        self.counts["forks"] += sum(len(run.samples) - 1 for run in plan.seqs if _forks(run))

    def note_outputs(self, outputs: Iterable[Any]) -> None:
        """Outputs of requests that have ended (octavo.llm.RequestOutput)."""
        for output in outputs:
            self.counts["tokens_found"] += output.num_cached_tokens
            self.counts["found_in_block"] += output.num_cached_tokens % self._block_size > 0

    def note_stats(self, stats: Any) -> None:
        """The statistics of an engine that has done its work (octavo.engine.stats.EngineStats)."""
        for name in WORDS:
            if name.startswith("num_"):
                self.counts[name] += getattr(stats, name)


def _forks(run: Any) -> bool:
    return len(run.samples) > 1 and not run.num_guesses

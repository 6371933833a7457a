"""The ways of running the same requests, and what shows that each really happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Regime:
    """One way. `settings` are keyword arguments of octavo.LLM.

    `evidence`: counts (of watch.py) that must be above zero, or it did not happen. `passes`: times
    that the requests run, all of them compared; `restarts`: each on a new engine. `host`, `disk`:
    there is such a tier. `forks`: more choices of each request, compared with runs in which nothing
    was forked.
    """

    name: str
    evidence: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_alone: bool = False
    is_short: bool = False  # of KV blocks
    passes: int = 1
    restarts: bool = False
    host: bool = False
    disk: bool = False
    forks: bool = False

    def takes(self, params: SamplingParams) -> bool:
        """True if it runs such a request: beams share blocks, which contiguous runs do not."""
        return not (params.use_beam_search and "kv_allocator" in self.settings)


OFF = {"enable_prefix_caching": False}
ONE = {"threads": 1}
STEP = {"num_scheduler_steps": 1}
COLD = Regime("alone, cold, one thread", (), {**OFF, **ONE, **STEP}, is_alone=True)
PREEMPTED = ("num_preemptions", "num_preempted_blocks")

REGIMES = (
    Regime("alone, several threads", ("threads",), OFF, is_alone=True),
    Regime("together", ("steps_shared",), OFF),
    Regime("together, one thread", ("steps_shared",), {**OFF, **ONE}),
    Regime("in chunks of 37", ("chunks",), {**OFF, "max_num_batched_tokens": 37}),
    Regime("in chunks of 5, one thread", ("chunks",), {**ONE, "max_num_batched_tokens": 5}),
    Regime("prefixes shared, whole blocks", ("tokens_found",), {"prefix_match": "block"}),
    Regime("prefixes shared, to the token", ("found_in_block", "num_cow_copies")),
    Regime("all found again", ("tokens_found", "found_in_block"), passes=2),
    Regime("all found again, alone", ("tokens_found",), ONE, is_alone=True, passes=2),
    Regime("forked (n = 3)", ("forks", "num_cow_copies"), forks=True),
    Regime("guessed tokens", ("num_guessed_tokens",), {"speculative": "ngram"}),
    Regime(
        "contiguous-max, in chunks",
        ("chunks",),
        {"kv_allocator": "contiguous-max", "max_num_batched_tokens": 37},
        is_short=True,
    ),
    Regime(
        "contiguous-pow2, few blocks",
        ("steps_shared",),
        {"kv_allocator": "contiguous-pow2"},
        is_short=True,
    ),
    Regime(
        "contiguous-oracle, few blocks",
        ("steps_shared",),
        {"kv_allocator": "contiguous-oracle", "speculative": "ngram"},
        is_short=True,
    ),
    Regime("preempted, nothing cached", PREEMPTED, OFF, is_short=True),
    Regime("preempted: blocks", PREEMPTED, is_short=True),
    Regime(
        "preempted, guessed, in chunks",
        (*PREEMPTED, "chunks", "num_guessed_tokens"),
        {"max_num_batched_tokens": 100, "speculative": "ngram", **ONE},
        is_short=True,
    ),
    Regime(
        "preempted: recompute",
        (*PREEMPTED, "num_recomputed_tokens"),
        {"preemption_mode": "recompute"},
        is_short=True,
    ),
    Regime(
        "preempted: blocks, host",
        (*PREEMPTED, "num_demoted_host", "num_promoted_host"),
        is_short=True,
        host=True,
    ),
    Regime(
        "preempted: sequence, host",
        (*PREEMPTED, "num_demoted_host", "num_promoted_host"),
        {"preemption_mode": "sequence"},
        is_short=True,
        host=True,
    ),
    Regime(
        "preempted: sequence, disk",
        (*PREEMPTED, "num_demoted_disk", "num_promoted_disk"),
        {"preemption_mode": "sequence"},
        is_short=True,
        disk=True,
    ),
    Regime(
        "from host",
        ("num_demoted_host", "num_promoted_host"),
        is_short=True,
        passes=2,
        host=True,
    ),
    Regime(
        "from disk",
        ("num_demoted_disk", "num_promoted_disk"),
        is_short=True,
        passes=2,
        disk=True,
    ),
    Regime(
        "from host and disk, one thread",
        ("num_demoted_host", "num_demoted_disk", "num_promoted_disk"),
        {**ONE, "prefix_match": "block"},
        is_short=True,
        passes=2,
        host=True,
        disk=True,
    ),
    Regime(
        "from disk after a restart",
        ("num_demoted_disk", "num_promoted_disk", "tokens_found"),
        passes=2,
        restarts=True,
        disk=True,
    ),
)

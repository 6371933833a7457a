"""What the engine can tell about itself.

A snapshot of gauges and counters, and each request's times.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.request import SamplingParams
from octavo.sched.outputs import FinishReason
from octavo.sched.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """One moment. Blocks: used + cached + free = total; counters grow from start."""

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    num_blocks_total: int = 0
    num_blocks_used: int = 0
    num_blocks_cached: int = 0
    num_blocks_free: int = 0
    block_size: int = 16
    num_tokens_in_used_blocks: int = 0
    num_steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    prefix_cache_hit_blocks: int = 0
    num_preemptions: int = 0
    num_preempted_blocks: int = 0
    num_preempted_tokens: int = 0
    num_guessed_tokens: int = 0
    num_accepted_guesses: int = 0
    num_cow_copies: int = 0
    num_evictions: int = 0


@dataclass(slots=True, kw_only=True)
class RequestTimes:
    """The life of one request, in seconds of the engine's clock; None: it never came to that."""

    request_id: str
    params: SamplingParams
    num_prompt_tokens: int
    arrival: float
    first_scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    num_cached_tokens: int = 0
    num_generation_tokens: int = 0
    num_open_choices: int = 1
    inter_token: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None


def snapshot(scheduler: Scheduler) -> EngineStats:
    """The scheduler's numbers now. Called by the thread that owns it."""
    kv, pool, counted = scheduler.kv, scheduler.kv.pool, scheduler.stats
    return EngineStats(
        num_requests_running=len(scheduler.running),
        num_requests_waiting=len(scheduler.waiting),
        num_blocks_total=pool.num_blocks,
        num_blocks_used=pool.num_used,
        # The spare block counts as free only while it is empty and nothing else is.
        num_blocks_cached=min(pool.num_cached, pool.num_blocks - pool.num_used),
        num_blocks_free=max(0, pool.num_blocks - pool.num_used - pool.num_cached),
        block_size=kv.block_size,
        num_tokens_in_used_blocks=kv.num_tokens_in_use,
        num_cow_copies=kv.num_cow_copies,
        num_evictions=pool.num_evictions,
        num_steps=counted.num_steps,
        prompt_tokens=counted.prompt_tokens,
        generation_tokens=counted.generation_tokens,
        computed_tokens=counted.computed_tokens,
        prefix_cache_queries=counted.prefix_cache_queries,
        prefix_cache_hits=counted.prefix_cache_hits,
        prefix_cache_hit_blocks=counted.prefix_cache_hit_blocks,
        num_preemptions=counted.num_preemptions,
        num_preempted_blocks=counted.num_preempted_blocks,
        num_preempted_tokens=counted.num_preempted_tokens,
        num_guessed_tokens=counted.num_guessed_tokens,
        num_accepted_guesses=counted.num_accepted_guesses,
    )

"""Counters of the scheduler: plain numbers that only grow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SchedulerStats:
    """Since start. Prefix-cache figures are in tokens and blocks of prompts at first admission."""

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
    num_recomputed_tokens: int = 0

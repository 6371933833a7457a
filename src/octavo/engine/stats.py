"""What the engine can tell about itself.

A snapshot of gauges and counters, and each request's times.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from octavo.kv.stats import KVStats
from octavo.kv.usage import usage
from octavo.request import SamplingParams
from octavo.sched.outputs import FinishReason
from octavo.sched.scheduler import Scheduler
from octavo.sched.stats import SchedulerStats


@dataclass(slots=True, kw_only=True)
class EngineStats(SchedulerStats, KVStats):
    """One moment: the scheduler's and the KV memory's counters, and these.

    Blocks of the device: used + cached + free = total, and used blocks · `block_size` =
    `num_tokens_in_used_blocks` + `num_reserved_slots` (reserved, and empty so far).
    `num_blocks_shared` of the used ones are in several tables; without sharing there would be
    `num_blocks_saved_by_sharing` more. In slower tiers blocks are cached or the slot is free.
    """

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    num_blocks_total: int = 0
    num_blocks_used: int = 0
    num_blocks_cached: int = 0
    num_blocks_free: int = 0
    block_size: int = 16
    num_tokens_in_used_blocks: int = 0
    num_reserved_slots: int = 0
    num_blocks_shared: int = 0
    num_blocks_saved_by_sharing: int = 0
    num_evictions: int = 0
    num_host_blocks_total: int = 0
    num_host_blocks_cached: int = 0
    num_disk_blocks_total: int = 0
    num_disk_blocks_cached: int = 0

    @property
    def num_host_blocks_free(self) -> int:
        """Slots of the host tier that hold nothing."""
        return self.num_host_blocks_total - self.num_host_blocks_cached

    @property
    def num_disk_blocks_free(self) -> int:
        """Slots of the tier on disk that hold nothing."""
        return self.num_disk_blocks_total - self.num_disk_blocks_cached

    @property
    def num_demoted(self) -> int:
        """Blocks copied to a slower tier."""
        return self.num_demoted_host + self.num_demoted_disk

    @property
    def num_promoted(self) -> int:
        """Blocks brought back from a slower tier."""
        return self.num_promoted_host + self.num_promoted_disk


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
    kv, pool = scheduler.kv, scheduler.kv.pool
    now = usage(kv)
    return EngineStats(
        num_requests_running=len(scheduler.running),
        num_requests_waiting=len(scheduler.waiting),
        num_blocks_total=pool.num_blocks,
        num_blocks_used=pool.num_used,
        # The spare block counts as free only while it is empty and nothing else is.
        num_blocks_cached=min(pool.num_cached, pool.num_blocks - pool.num_used),
        num_blocks_free=max(0, pool.num_blocks - pool.num_used - pool.num_cached),
        block_size=kv.block_size,
        num_tokens_in_used_blocks=now.num_filled_slots,
        num_reserved_slots=now.num_reserved_slots,
        num_blocks_shared=now.num_shared,
        num_blocks_saved_by_sharing=now.num_saved,
        num_evictions=pool.num_evictions,
        num_host_blocks_total=kv.memory.host.num_slots,
        num_host_blocks_cached=kv.memory.host.num_used,
        num_disk_blocks_total=kv.memory.disk.num_slots,
        num_disk_blocks_cached=kv.memory.disk.num_used,
        **asdict(scheduler.stats),
        **asdict(kv.stats),
    )

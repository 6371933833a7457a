"""A line every ten seconds while the engine is busy: what it did in them, and how full it is."""

from __future__ import annotations

from collections.abc import Callable

from octavo.engine.stats import EngineStats

INTERVAL = 10.0
"""Seconds between two lines, and a pause after which counting begins anew."""


class StatsLog:
    """Told before every step; `write` gets the lines."""

    def __init__(self, stats: Callable[[], EngineStats], write: Callable[[str], None]) -> None:
        self._stats = stats
        self._write = write
        self._before: EngineStats | None = None
        self._since = 0.0
        self._last_step = 0.0

    def observe(self, now: float) -> None:
        """A step begins at `now`, in seconds of the engine's clock."""
        if self._before is None or now - self._last_step > INTERVAL:
            self._begin(now, self._stats())
        elif now - self._since >= INTERVAL:
            stats = self._stats()
            self._write(line(self._before, stats, now - self._since))
            self._begin(now, stats)
        self._last_step = now

    def _begin(self, now: float, stats: EngineStats) -> None:
        self._before, self._since = stats, now


def line(before: EngineStats, now: EngineStats, seconds: float) -> str:
    """What happened between two snapshots that lie `seconds` apart."""
    asked = now.prefix_cache_queries - before.prefix_cache_queries
    found = now.prefix_cache_hits - before.prefix_cache_hits
    made = now.generation_tokens - before.generation_tokens
    parts = [
        f"Prompts: {asked / seconds:.1f} tokens/s",
        f"output: {made / seconds:.1f} tokens/s",
        f"running: {now.num_requests_running}",
        f"waiting: {now.num_requests_waiting}",
        f"KV blocks in use: {_share(now.num_blocks_used, now.num_blocks_total)}",
        f"prefix hits: {_share(found, asked)}",
        *_tiers(before, now),
        *_events(before, now),
    ]
    return ", ".join(parts)


def _tiers(before: EngineStats, now: EngineStats) -> list[str]:
    """How full the slower tiers are, and what went down and came back; nothing without them."""
    parts = []
    for name, held, total, down, up in (
        (
            "host",
            now.num_host_blocks_cached,
            now.num_host_blocks_total,
            now.num_demoted_host - before.num_demoted_host,
            now.num_promoted_host - before.num_promoted_host,
        ),
        (
            "disk",
            now.num_disk_blocks_cached,
            now.num_disk_blocks_total,
            now.num_demoted_disk - before.num_demoted_disk,
            now.num_promoted_disk - before.num_promoted_disk,
        ),
    ):
        if total:
            parts.append(f"{name} tier: {_share(held, total)} ({down} blocks down, {up} up)")
    return parts


def _events(before: EngineStats, now: EngineStats) -> list[str]:
    """What should be rare, if it happened."""
    changes = {
        "preemptions": now.num_preemptions - before.num_preemptions,
        "tokens computed again": now.num_recomputed_tokens - before.num_recomputed_tokens,
        "lost writes": now.num_lost - before.num_lost,
        "failed promotions": now.num_missing - before.num_missing,
    }
    return [f"{name}: {number}" for name, number in changes.items() if number]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"

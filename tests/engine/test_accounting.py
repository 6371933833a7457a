"""Every number of the engine's statistics is what a count by hand gives, after every step and amid it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter

import pytest

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.limits import EngineLimits
from octavo.engine.stats import EngineStats
from octavo.engine.stats_log import INTERVAL, StatsLog
from octavo.request import SamplingParams
from tests.engine.letters import Letters
from tests.engine.witness import Witness
from tests.sched.drive import make_core, make_request
from tests.toy import generate_alone

STEMS = [[(7 * s + i * i) % 11 for i in range(24)] for s in range(3)]
TIERS = [(0, 0), (6, 0), (0, 9), (0, 40), (4, 7), (60, 200)]
HAPPENED = (
    "num_cow_copies", "num_demoted_host", "num_demoted_disk", "num_promoted_host",
    "num_promoted_disk", "num_preemptions", "num_preempted_blocks", "num_recomputed_tokens",
    "num_hits_device", "num_misses", "num_lost", "num_missing", "num_evictions",
)  # fmt: skip


def run_one(rng: random.Random) -> Counter[str]:
    """A few requests over a tiny memory of random shape; returns what happened, by hand."""
    caching = rng.random() < 0.8
    host, disk = rng.choice(TIERS) if caching else (0, 0)
    core = make_core(
        rng.randint(9, 30),
        match_tokens=rng.random() < 0.5,
        num_host_blocks=host,
        num_disk_blocks=disk,
        preemption_mode=rng.choice(["blocks", "sequence", "recompute"]),
        prefix_caching=caching,
        max_num_batched_tokens=rng.choice([1, 3, 7, 100]),
        max_num_seqs=rng.randint(3, 8),
        scheduling_policy="priority",
    )
    memory = core.runner.memory  # type: ignore[attr-defined]
    memory.broken_slots = set(rng.sample(range(9), rng.choice([0, 0, 3])))
    damage = rng.choice([0, 0, 1, 4])  # slots of the disk that lose their contents, now and then
    witness = Witness(core)
    expected: dict[tuple[str, int], list[int]] = {}
    tokens: dict[tuple[str, int], list[int]] = {}

    def step() -> None:
        for out in witness.step():
            tokens.setdefault((out.request_id, out.index), []).extend(out.token_ids)

    for i in range(rng.randint(1, 10)):
        prompt = STEMS[rng.randrange(3)][: rng.randint(1, 22)]
        beams = {"use_beam_search": True, "beam_width": 3} if rng.random() < 0.2 else {}
        request = make_request(
            f"r{i}", prompt, rng.randint(1, 12), n=rng.randint(1, 3), arrival=float(i),
            priority=rng.randint(-1, 1), cache_salt=rng.choice([None, None, "a"]), **beams,
        )  # fmt: skip
        for index in range(0 if beams else request.params.n):
            expected[f"r{i}", index] = generate_alone(prompt, request.params.max_tokens or 0, index)
        witness.add(request)
        for _ in range(i):  # some come late
            step()
        if i % 3 == 2:
            core.save(3)
        for slot in list(memory.disk)[:damage]:
            del memory.disk[slot]
    for _ in range(3000):
        if not core.has_work:
            break
        step()
    assert tokens | expected == tokens
    return witness.count


def test_all_numbers() -> None:
    seen: Counter[str] = Counter()
    for seed in range(250):
        seen += run_one(random.Random(seed))
    # A number that is never anything but zero proves nothing.
    assert {name: seen[name] for name in HAPPENED if seen[name] < 5} == {}


def snapshot(**numbers: int) -> EngineStats:
    return EngineStats(num_blocks_total=200, **numbers)


def test_a_busy_engine_says_every_ten_seconds_what_it_does() -> None:
    now, lines = snapshot(prefix_cache_queries=500, prefix_cache_hits=100), list[str]()
    log = StatsLog(lambda: now, lines.append)
    log.observe(100.0)
    now = snapshot(
        prefix_cache_queries=1500, prefix_cache_hits=700, generation_tokens=255, num_blocks_used=50,
        num_requests_running=3, num_requests_waiting=1,
    )  # fmt: skip
    log.observe(109.9)
    assert lines == []
    log.observe(110.0)
    log.observe(119.0)
    assert lines == [
        "Prompts: 100.0 tokens/s, output: 25.5 tokens/s, running: 3, waiting: 1, "
        "KV blocks in use: 25.0%, prefix hits: 60.0%"
    ]


def test_the_line_tells_of_tiers_and_of_what_went_wrong() -> None:
    now, lines = snapshot(num_demoted_host=7), list[str]()
    log = StatsLog(lambda: now, lines.append)
    log.observe(0.0)
    now = snapshot(
        num_demoted_host=10, num_host_blocks_total=100, num_host_blocks_cached=5,
        num_disk_blocks_total=1000, num_disk_blocks_cached=1000, num_promoted_disk=4, num_lost=1,
        num_preemptions=2,
    )  # fmt: skip
    log.observe(INTERVAL)
    assert lines[0].endswith(
        "prefix hits: -, host tier: 5.0% (3 blocks down, 0 up), "
        "disk tier: 100.0% (0 blocks down, 4 up), preemptions: 2, lost writes: 1"
    )


def test_a_pause_is_not_counted() -> None:
    now, lines = snapshot(generation_tokens=10), list[str]()
    log = StatsLog(lambda: now, lines.append)
    for at in (0.0, 1.0, 500.0):
        log.observe(at)
    now = snapshot(generation_tokens=110)
    for at in (505.0, 510.0):
        log.observe(at)
    assert [line.split(", ")[1] for line in lines] == ["output: 10.0 tokens/s"]


@pytest.mark.parametrize("log_stats", [True, False])
def test_the_engine_writes_it(log_stats: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="octavo")
    core = make_core(max_model_len=200)  # its clock goes on by a second each time it is asked
    limits = EngineLimits(
        max_model_len=200, num_kv_blocks=64, block_size=4, max_num_seqs=8, vocab_size=100
    )

    async def main() -> None:
        engine = AsyncEngine(core, Letters(), limits, log_stats=log_stats)  # type: ignore[arg-type]
        await engine.start()
        params = SamplingParams(max_tokens=60)
        assert [d async for d in engine.generate([1, 2, 3], params, request_id="a")]
        await engine.drain(5.0)

    asyncio.run(main())
    lines = [r.getMessage() for r in caplog.records if "KV blocks in use" in r.getMessage()]
    assert (len(lines) > 3) == log_stats
    assert len(lines) > 3 or not lines
    assert all("running: 1, waiting: 0" in line for line in lines[:-1])

"""Counts by hand what the engine claims to have counted.

It looks at tables, moves, plans and outputs, never at a counter, and keeps its own notes of what went
by. Slow, and as simple as it can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from octavo.engine.core import EngineCore
from octavo.engine.stats import EngineStats
from octavo.kv.moves import Copy, Demote, Move, MoveOutcome, Promote
from octavo.kv.prefix import Key, extend_chain, root_hash
from octavo.request import Request
from octavo.sched.outputs import SeqOutput
from octavo.sched.plan import StepPlan, StepResult


class Witness:
    """Stands beside `core` from its first request on."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.kv = core.scheduler.kv
        self.count: Counter[str] = Counter()
        self.requests: dict[str, Request] = {}
        self.open: set[tuple[str, int]] = set()
        self.reading: list[int] = []  # blocks that copies of the step under way read
        self.started: set[str] = set()
        self.robbed: dict[Any, set[int]] = {}  # positions that a sequence has lost to others
        self.has_run = False
        self.mismatch: AssertionError | None = None
        self._watch_runner()
        self._watch_kv()
        self._watch_scheduler()

    # -- what goes by ------------------------------------------------------------------------------

    def _watch_runner(self) -> None:
        move, execute = self.core.runner.move, self.core.runner.execute

        def watched_move(moves: Sequence[Move], timeout: float) -> MoveOutcome:
            self.has_run = True
            self.count += moved(moves)
            self.reading = [m.src for m in moves if isinstance(m, Copy)]
            try:
                self.compare()
            except AssertionError as error:  # the core would take it for a broken runner
                self.mismatch = self.mismatch or error
            outcome = move(moves, timeout)
            self.count["num_lost"] += len(outcome.lost)
            self.count["num_missing"] += len(outcome.missing)
            return outcome

        def watched_execute(plan: StepPlan) -> StepResult:
            for run in plan.seqs:
                self._note_run(run.seq_id, run.start, len(run.token_ids))
            return execute(plan)

        self.core.runner.move = watched_move  # type: ignore[method-assign]
        self.core.runner.execute = watched_execute  # type: ignore[method-assign]

    def _note_run(self, seq_id: str, start: int, num_tokens: int) -> None:
        request_id, index = seq_id.split("#")
        num_prompt = len(self.requests[request_id].prompt_token_ids)
        if index == "0" and seq_id not in self.started:
            self.count["prefix_cache_queries"] += num_prompt
            self.count["prefix_cache_hits"] += start
            self.count["prefix_cache_hit_blocks"] += start // self.kv.block_size
        self.started.add(seq_id)
        self.count["computed_tokens"] += num_tokens
        seq = self.core.scheduler.sequences[seq_id]  # beams come and go under the same name
        again = self.robbed.get(seq, set()) & set(range(start, start + num_tokens))
        self.count["num_recomputed_tokens"] += len(again)

    def _watch_kv(self) -> None:
        kv, match, recall, promise = self.kv, self.kv.match, self.kv.recall, self.kv.promise
        add, evict = kv.memory.children.add, kv.pool._evict

        def num_full(seq_id: str) -> int:
            return kv.num_computed(seq_id) // kv.block_size if kv.holds(seq_id) else 0

        def watched_match(seq_id: str, *args: Any, **named: Any) -> int:
            before = num_full(seq_id)
            num = match(seq_id, *args, **named)
            self.count["num_hits_device"] += num_full(seq_id) - before
            return num

        def watched_recall(seq_id: str, *args: Any) -> int:
            before, num_moves = num_full(seq_id), len(kv.memory._moves)
            num = recall(seq_id, *args)
            ordered = kv.memory._moves[num_moves:]
            table = kv.block_ids(seq_id)[before : num_full(seq_id)]
            brought = [m for m in ordered if isinstance(m, Promote) and m.dst in table]
            self.count["num_hits_device"] += num_full(seq_id) - before - len(brought)
            return num

        def watched_promise(seq_id: str) -> None:
            if kv.enable_prefix_caching:
                self.count["num_misses"] += self._num_missing(seq_id)
            promise(seq_id)

        def watched_add(key: Key) -> None:
            self.count["children"] += 1
            add(key)

        def watched_evict() -> int:
            self.count["num_evictions"] += 1
            return evict()

        kv.match, kv.recall, kv.promise = watched_match, watched_recall, watched_promise  # type: ignore[method-assign]
        kv.memory.children.add, kv.pool._evict = watched_add, watched_evict  # type: ignore[method-assign]

    def _num_missing(self, seq_id: str) -> int:
        """Full blocks that the sequence must compute before its last token."""
        seq = self.core.scheduler.sequences[seq_id]
        salt = seq.request.cache_salt
        chain: list[Key] = []
        root = root_hash((f"salt:{salt}",) if salt is not None else ())
        size = self.kv.block_size
        extend_chain(chain, root, seq.tokens, (len(seq.tokens) - 1) // size, size)
        there = {key.hash for key in self.kv.pool.all_keys()}
        return sum(key.hash not in there for key in chain[seq.num_computed // size :])

    def _watch_scheduler(self) -> None:
        scheduler, rob = self.core.scheduler, self.core.scheduler._take_from
        wait, run = scheduler.waiting.add, scheduler.running.add
        seated: set[Any] = set()

        def watched_rob(kv: Any, seq_id: str, num: int) -> int:
            seq = scheduler.sequences[seq_id]
            free, tokens = kv.num_free, seq.num_computed
            result = rob(kv, seq_id, num)
            self.count["num_preempted_blocks"] += kv.num_free - free
            lost = set(range(kv.num_computed(seq_id), tokens))
            self.count["num_preempted_tokens"] += len(lost)
            self.robbed.setdefault(seq, set()).update(lost)
            return result

        def watched_wait(seq: Any) -> None:
            self.count["num_preemptions"] += seq in seated
            self.requests[seq.request.request_id] = seq.request
            wait(seq)

        def watched_run(seq: Any) -> None:
            seated.add(seq)
            run(seq)

        scheduler._take_from = watched_rob
        scheduler.waiting.add = watched_wait  # type: ignore[method-assign]
        scheduler.running.add = watched_run  # type: ignore[method-assign]

    # -- from outside ------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        self.open.add((request.request_id, 0))
        self.count["prompt_tokens"] += len(request.prompt_token_ids)
        self.core.add_request(request)

    def step(self) -> list[SeqOutput]:
        self.has_run = False
        outputs = self.core.step()
        self.reading = []
        self.count["num_steps"] += self.has_run
        if self.mismatch is not None:
            raise self.mismatch
        for out in outputs:
            self.open.add((out.request_id, out.index))
            self.count["generation_tokens"] += len(out.token_ids)
        self.open -= {(out.request_id, out.index) for out in outputs if out.finish_reason}
        self.compare()
        return outputs

    # -- the comparison ----------------------------------------------------------------------------

    def compare(self) -> None:
        """Every number of the engine's statistics against what is counted here."""
        stats = self.core.stats()
        ordered = moved(self.kv.memory._moves)  # not carried out yet, but counted
        expected = {
            **dict.fromkeys(COUNTERS, 0),
            **{name: self.count[name] for name in COUNTERS},
            **{name: self.count[name] + ordered[name] for name in MOVES},
            **self.tiers(),
            **self.device(),
        }
        expected["num_dropped"] = self.count["children"] - len(list(self.kv.memory.children))
        seen = {name: getattr(stats, name) for name in expected}
        wrong = {name: (seen[name], num) for name, num in expected.items() if seen[name] != num}
        assert not wrong, f"{wrong}: (statistics, by hand)"
        num_sequences = stats.num_requests_running + stats.num_requests_waiting
        assert num_sequences == len(self.core.scheduler.sequences)
        if not any(r.params.use_beam_search for r in self.requests.values()):
            assert num_sequences == len(self.open)  # beams are no choices
        left = {f.name for f in EngineStats.__dataclass_fields__.values()} - set(expected)
        assert left == NOT_COUNTED_HERE, "a number that nobody checks"

    def tiers(self) -> dict[str, int]:
        memory = self.kv.memory
        host, disk = set(memory.host.all_keys()), set(memory.disk.all_keys())
        return {
            "num_host_blocks_total": memory.host.num_slots,
            "num_host_blocks_cached": len(host),
            "num_host_blocks_free": memory.host.num_slots - len(host),
            "num_disk_blocks_total": memory.disk.num_slots,
            "num_disk_blocks_cached": len(disk),
            "num_disk_blocks_free": memory.disk.num_slots - len(disk),
        }

    def device(self) -> dict[str, int]:
        kv, pool, size = self.kv, self.kv.pool, self.kv.block_size
        tables = {seq_id: t.block_ids[t.num_dropped :] for seq_id, t in kv.tables.items()}
        times = Counter(b for table in tables.values() for b in table)
        pending = [m.src for m in kv.memory._moves if isinstance(m, Copy)]
        used = {*times, *self.reading, *pending, *kv.memory._in_flight}
        tokens: dict[int, int] = {}
        for seq_id, table in tables.items():
            left = kv.num_computed(seq_id)
            for block_id in kv.tables[seq_id].block_ids:
                if block_id in table:
                    tokens[block_id] = max(tokens.get(block_id, 0), min(left, size))
                left -= min(left, size)
        keys = {b: pool.key_of(b) for b in range(pool.num_blocks + 1)}
        for block_id, key in keys.items():
            if key is not None:
                tokens[block_id] = key.num_tokens
        filled = sum(tokens.get(block_id, 0) for block_id in used)
        cached = sum(key is not None and b not in used for b, key in keys.items())
        cached = min(cached, pool.num_blocks - len(used))  # one block more than the pool promises
        return {
            "num_blocks_total": pool.num_blocks,
            "num_blocks_used": len(used),
            "num_blocks_cached": cached,
            "num_blocks_free": pool.num_blocks - len(used) - cached,
            "num_tokens_in_used_blocks": filled,
            "num_reserved_slots": len(used) * size - filled,
            "num_blocks_shared": sum(num > 1 for num in times.values()),
            "num_blocks_saved_by_sharing": sum(times.values()) - len(times),
            "block_size": size,
        }


MOVES = (
    "num_cow_copies",
    "num_demoted_host",
    "num_demoted_disk",
    "num_promoted_host",
    "num_promoted_disk",
)
COUNTERS = (
    "num_steps", "prompt_tokens", "generation_tokens", "computed_tokens", "prefix_cache_queries",
    "prefix_cache_hits", "prefix_cache_hit_blocks", "num_preemptions", "num_preempted_blocks",
    "num_preempted_tokens", "num_recomputed_tokens", "num_evictions", "num_hits_device",
    "num_misses", "num_lost", "num_missing", "num_dropped",
)  # fmt: skip
NOT_COUNTED_HERE = {
    "num_requests_running", "num_requests_waiting",  # their sum is
    "num_guessed_tokens", "num_accepted_guesses",  # test_speculation.py
}  # fmt: skip


def moved(moves: Sequence[Move]) -> Counter[str]:
    """Blocks by kind of move."""
    count: Counter[str] = Counter()
    for move in moves:
        if isinstance(move, Copy):
            count["num_cow_copies"] += 1
        elif isinstance(move, Demote):
            count[f"num_demoted_{move.dst.tier.value}"] += 1
        else:
            count[f"num_promoted_{move.src.tier.value}"] += 1
    return count

"""The engine's core: one thread calls `step` in a loop and owns everything below it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from octavo.engine.stats import EngineStats, RequestTimes, snapshot
from octavo.kv.moves import Move, MoveOutcome
from octavo.request import Request
from octavo.sched.outputs import FinishReason, SeqOutput
from octavo.sched.plan import StepPlan, StepResult
from octavo.sched.scheduler import Scheduler
from octavo.sched.sequence import seq_id_of

DISK_PATIENCE = 0.01
"""Seconds to wait for the disk when there is nothing else to do; new requests wait as long."""

log = logging.getLogger(__name__)


class Runner(Protocol):
    """The tensor plane, real or predicted."""

    def move(self, moves: Sequence[Move], timeout: float) -> MoveOutcome:
        """Carry out moves in order, and collect what has come of earlier ones.

        With nothing to carry out it may wait `timeout` seconds for something to come from the disk.
        If it raises, none of `moves` counts as done, and none may have an effect later.
        """
        ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the runs, draw the samples; the plan's moves are done."""
        ...

    @property
    def can_save(self) -> bool:
        """True if the disk would take more blocks at once."""
        ...

    @property
    def can_save_later(self) -> bool:
        """True unless the disk refuses blocks; it may be busy now."""
        ...

    def close(self, timeout: float) -> None:
        """Finish what is being written, for `timeout` seconds at most, and let the disk go."""
        ...


class EngineCore:
    """Scheduler and runner, and the clock that neither of them reads (`clock` gives seconds).

    `lock` is held whenever the books change, never while the runner computes: `stats` may be asked
    from any thread; all else belongs to the one that calls `step`.
    """

    def __init__(self, scheduler: Scheduler, runner: Runner, clock: Callable[[], float]) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.lock = threading.Lock()
        self.on_step: Callable[[StepPlan, float], None] | None = None
        self.on_finished: Callable[[RequestTimes], None] | None = None
        self._times: dict[str, RequestTimes] = {}

    @property
    def has_work(self) -> bool:
        """True if `step` would compute something."""
        return self.scheduler.has_work

    def add_request(self, request: Request) -> None:
        """Queue an admitted request."""
        with self.lock:
            self.scheduler.add(request)
        self._times[request.request_id] = RequestTimes(
            request_id=request.request_id,
            params=request.params,
            num_prompt_tokens=len(request.prompt_token_ids),
            arrival=request.arrival_time,
            num_open_choices=request.params.num_choices,
        )

    def abort_request(self, request_id: str) -> None:
        """Drop all that is left of a request; unknown or finished ids are no error."""
        times = self._times.get(request_id)
        if times is None:
            return
        for index in range(times.params.num_seqs):
            self._drop(request_id, index)
        self._close(times, "abort")

    def finish_choice(self, request_id: str, index: int) -> None:
        """End one choice early: the caller has seen a stop string in its text."""
        if self._drop(request_id, index):
            self._end_choice(request_id, "stop")

    def step(self) -> list[SeqOutput]:
        """One step.

        Plan, execute, book. An error of the runner ends the step's sequences, not the engine.
        """
        started = self.clock()
        with self.lock:
            plan = self.scheduler.schedule(started)
        if plan.is_empty and not self.scheduler.kv.memory.num_in_flight:
            return []
        for seq in self.scheduler.admitted:
            self._note_admitted(seq.request.request_id, started)
        result = self._execute(plan)
        result.seconds = self.clock() - started
        with self.lock:
            outputs = self.scheduler.update(plan, result)
        now = self.clock()
        for output in outputs:
            self._note_output(output, now)
        if self.on_step is not None and plan.seqs:
            self.on_step(plan, now - started)
        return outputs

    def _execute(self, plan: StepPlan) -> StepResult:
        """Moves, then arithmetic. What fails ends the plan's sequences and counts as not moved."""
        outcome: MoveOutcome | None = None
        try:
            outcome = self.runner.move(plan.moves, 0.0 if plan.seqs else DISK_PATIENCE)
            result = self.runner.execute(plan) if plan.seqs else StepResult()
        except Exception as error:
            log.exception("step %d failed; its %d sequences end", plan.step_id, len(plan.seqs))
            result = _all_failed(plan, f"internal error: {type(error).__name__}: {error}")
        except BaseException:  # Ctrl-C: the books must be right for whoever goes on
            result = _all_failed(plan, "interrupted")
            result.moves = outcome or MoveOutcome.none_done(plan.moves)
            with self.lock:
                self.scheduler.update(plan, result)
            raise
        result.moves = outcome or MoveOutcome.none_done(plan.moves)
        return result

    @property
    def has_unsaved(self) -> bool:
        """True while there are blocks that `save` has still to order."""
        return self.scheduler.kv.memory.num_unsaved > 0

    def save(self, num_blocks: int = 8) -> bool:
        """While there is nothing else to do: order some blocks to be written to the disk.

        True if there were any; `step` does it.
        """
        with self.lock:
            return self.runner.can_save and self.scheduler.kv.memory.save(num_blocks) > 0

    def close(self, timeout: float = 30.0) -> None:
        """The last thing: write what is not on the disk yet, for `timeout` seconds at most."""
        deadline = self.clock() + timeout
        while self.has_unsaved and self.runner.can_save_later and self.clock() < deadline:
            if self.save():
                self.step()
            else:  # the disk is busy
                self.runner.move((), DISK_PATIENCE)
        self.runner.close(max(0.0, deadline - self.clock()))

    def stats(self) -> EngineStats:
        """A snapshot of all counters and gauges, from any thread."""
        with self.lock:
            return snapshot(self.scheduler)

    def check(self) -> None:
        """Prove the books of scheduler and KV manager; AssertionError says what is wrong."""
        self.scheduler.check()

    def _drop(self, request_id: str, index: int) -> bool:
        with self.lock:
            seq = self.scheduler.sequences.get(seq_id_of(request_id, index))
            if seq is not None:
                self.scheduler.finish(seq)
        return seq is not None

    # -- times -------------------------------------------------------------------------------------

    def _note_admitted(self, request_id: str, now: float) -> None:
        times = self._times[request_id]
        if times.first_scheduled is None:  # it may have been preempted and be back
            times.first_scheduled = now

    def _note_output(self, output: SeqOutput, now: float) -> None:
        times = self._times.get(output.request_id)
        if times is None:
            return
        times.num_cached_tokens = output.num_cached_tokens
        if output.token_ids:
            times.num_generation_tokens += len(output.token_ids)
            if times.first_token is None:
                times.first_token = now
            elif output.index == 0 and times.last_token is not None:
                times.inter_token.append(now - times.last_token)
            times.last_token = now
        if output.finish_reason is not None:
            self._end_choice(output.request_id, output.finish_reason)

    def _end_choice(self, request_id: str, reason: FinishReason) -> None:
        times = self._times.get(request_id)
        if times is None:
            return
        times.num_open_choices -= 1
        if times.num_open_choices == 0:
            self._close(times, reason)

    def _close(self, times: RequestTimes, reason: FinishReason) -> None:
        times.finish_reason = reason
        del self._times[times.request_id]
        if self.on_finished is not None:
            self.on_finished(times)


def _all_failed(plan: StepPlan, reason: str) -> StepResult:
    return StepResult(failed={run.seq_id: reason for run in plan.seqs})

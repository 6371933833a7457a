"""Booking a step: commit blocks, fork choices, append tokens, end sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from octavo.request import TokenLogprob
from octavo.sched.beam import Beam
from octavo.sched.branches import branch, close
from octavo.sched.outputs import FinishReason, SeqOutput
from octavo.sched.plan import ScheduledSeq, StepPlan, StepResult
from octavo.sched.sequence import Sequence

if TYPE_CHECKING:
    from octavo.sched.scheduler import Scheduler


class Booking:
    """One step's books: `run` takes the plan's runs one after the other, `outputs` fills up."""

    def __init__(self, scheduler: Scheduler, plan: StepPlan, result: StepResult) -> None:
        self._scheduler = scheduler
        self._plan = plan
        self._result = result
        self.outputs: list[SeqOutput] = []

    def run(self) -> list[SeqOutput]:
        """Book the whole step; returns each choice's new tokens."""
        scheduler, plan, result = self._scheduler, self._plan, self._result
        if scheduler.kv.settle(plan.moves, result.moves):
            scheduler.resync()
        scheduler.promotion.observe_step(plan.num_tokens, result.seconds)
        scheduler.promotion.observe_copies(result.moves.seconds_per_block)
        if plan.seqs and all(run.is_decode for run in plan.seqs):
            scheduler.pace.observe(result.seconds / plan.num_steps)
        scheduler.stats.num_steps += plan.num_steps
        scheduler.stats.computed_tokens += plan.num_tokens
        for run in plan.seqs:
            seq = scheduler.sequences.get(run.seq_id)
            if seq is None:
                continue  # aborted while the step ran
            if result.failed and run.seq_id in result.failed:
                self._fail(seq, result.failed[run.seq_id])
            else:
                self._book(seq, run)
        return self.outputs

    def _book(self, seq: Sequence, run: ScheduledSeq) -> None:
        if not seq.has_started:
            self._count_first_admission(seq)
        if run.prompt_logprobs is not None:
            self._keep_prompt_logprobs(seq, run)
        end = run.start + len(run.token_ids) - run.num_guesses
        if seq.num_reached > run.start:
            self._scheduler.stats.num_recomputed_tokens += min(end, seq.num_reached) - run.start
        if run.num_guesses:
            self._book_guesses(seq, run, end)
            return
        if self._plan.num_steps > 1:
            self._append(seq, self._result.sampled[seq.seq_id], end)
            return
        self._commit(seq, end)
        if end < len(seq.tokens):
            return
        if seq.beam is not None:
            self._book_beam(seq, seq.beam)
            return
        choices = [seq]
        if seq.forks:
            scheduler = self._scheduler
            choices += [scheduler.fork(seq, index) for index in scheduler.take_forks(seq)]
        for each in choices:
            if run.samples:
                self._append(each, self._result.sampled.get(each.seq_id, ()))
            else:  # max_tokens is 0: the prompt alone was wanted
                self._emit(each, (), "length")

    def _book_guesses(self, seq: Sequence, run: ScheduledSeq, end: int) -> None:
        """Keep the guesses that equal what was drawn, and what was drawn after the last of them."""
        drawn = self._result.sampled[seq.seq_id]
        guesses = run.token_ids[-run.num_guesses :]
        num_right = 0
        while num_right < len(guesses) and drawn[num_right].token_id == guesses[num_right]:
            num_right += 1
        stats = self._scheduler.stats
        stats.num_guessed_tokens += len(guesses)
        stats.num_accepted_guesses += num_right
        assert seq.lookup is not None
        seq.lookup.learn(num_right, len(guesses) - num_right)
        self._append(seq, drawn[: num_right + 1], end)

    def _commit(self, seq: Sequence, num_computed: int) -> None:
        seq.num_computed = num_computed
        kv, window = self._scheduler.kv, self._scheduler.sliding_window
        kv.commit(seq.seq_id, seq.tokens, num_computed)
        if window is not None:  # the next token sees itself and window - 1 before it
            kv.drop_before(seq.seq_id, num_computed - window + 1)

    def _count_first_admission(self, seq: Sequence) -> None:
        seq.has_started = True
        stats = self._scheduler.stats
        stats.prefix_cache_queries += seq.num_prompt
        stats.prefix_cache_hits += seq.num_cached
        stats.prefix_cache_hit_blocks += seq.num_cached // self._scheduler.kv.block_size

    def _keep_prompt_logprobs(self, seq: Sequence, run: ScheduledSeq) -> None:
        if not seq.prompt_logprobs:
            seq.prompt_logprobs.append(None)  # nothing comes before the first token
        for position, entry in enumerate(
            self._result.prompt_logprobs.get(seq.seq_id, ()), start=run.start + 1
        ):
            if position == len(
                seq.prompt_logprobs
            ):  # earlier ones were delivered before a preemption
                seq.prompt_logprobs.append(entry)
        seq.wants_prompt_logprobs = len(seq.prompt_logprobs) < seq.num_prompt

    def _book_beam(self, seq: Sequence, beam: Beam) -> None:
        """Keep what may follow it; the last of its group takes all of them a token further."""
        beam.candidates = self._result.candidates[seq.seq_id]
        group = beam.group
        if group.is_settled:
            if seq.prompt_logprobs and not group.prompt_logprobs:
                group.prompt_logprobs = tuple(seq.prompt_logprobs)
            if not branch(self._scheduler, group):
                self.outputs += close(self._scheduler, group)

    def _append(
        self, seq: Sequence, drawn: Iterable[TokenLogprob], num_computed: int | None = None
    ) -> None:
        """Append tokens until one ends the sequence.

        `num_computed`: where all but the last have been computed already, those before them.
        """
        if self._result.failed and seq.seq_id in self._result.failed:
            self._fail(seq, self._result.failed[seq.seq_id])
            return
        tokens: list[TokenLogprob] = []
        finish_reason: FinishReason | None = None
        stop_reason: int | None = None
        for token in drawn:
            seq.tokens.append(token.token_id)
            tokens.append(token)
            finish_reason, stop_reason = self._why_finished(seq, token.token_id)
            if finish_reason is not None:
                break
        self._scheduler.stats.generation_tokens += len(tokens)
        if num_computed is not None:
            self._commit(seq, num_computed + len(tokens) - 1)
        self._emit(seq, tuple(tokens), finish_reason, stop_reason)

    def _why_finished(self, seq: Sequence, token_id: int) -> tuple[FinishReason | None, int | None]:
        if token_id in seq.end_token_ids:
            return "stop", token_id if token_id in seq.request.params.stop_token_ids else None
        if len(seq.tokens) >= seq.max_len:
            return "length", None
        return None, None

    def _emit(
        self,
        seq: Sequence,
        tokens: tuple[TokenLogprob, ...],
        finish_reason: FinishReason | None = None,
        stop_reason: int | None = None,
    ) -> None:
        output = SeqOutput(
            seq.request.request_id,
            seq.index,
            tuple([token.token_id for token in tokens]),
            tokens,
            finish_reason,
            stop_reason,
            seq.num_cached,
        )
        if seq.index == 0 and seq.num_output == len(tokens) and seq.prompt_logprobs:
            output.prompt_logprobs = tuple(seq.prompt_logprobs)
        self.outputs.append(output)
        if finish_reason is not None:
            self._scheduler.finish(seq)

    def _fail(self, seq: Sequence, error: str) -> None:
        """End a choice, and those that would have been forked from it, with an error."""
        if seq.beam is not None:
            self.outputs += close(self._scheduler, seq.beam.group, error)
            return
        for index in (seq.index, *seq.forks):
            self.outputs.append(
                SeqOutput(
                    request_id=seq.request.request_id,
                    index=index,
                    token_ids=(),
                    logprobs=(),
                    finish_reason="error",
                    error=error,
                )
            )
        self._scheduler.finish(seq, is_sound=False)

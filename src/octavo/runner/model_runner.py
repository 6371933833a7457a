"""The tensor plane's two verbs: carry out a plan's moves, then execute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.errors import SequenceError
from octavo.kv.moves import Move, MoveOutcome
from octavo.ops.base import F32, Batch, Ops
from octavo.request import TokenLogprob
from octavo.runner.inputs import InputBuilder, PromptRows
from octavo.runner.logprobs import prompt_logprobs
from octavo.runner.sampler import sample
from octavo.runner.tier_storage import TierStorage
from octavo.sched.plan import ScheduledSeq, StepPlan, StepResult

HEAD_ROWS = 64
"""Rows of logits held at once for prompt log-probabilities: 64 x 49,152 x 4 B = 12.6 MB."""


class LanguageModel(Protocol):
    """What the runner needs of a model; H hidden size, V vocabulary."""

    def hidden(self, batch: Batch) -> F32:
        """Compute the step, writing keys and values; final hidden rows of `batch.logits_rows` [R,
        H]."""
        ...

    def logits(self, hidden: F32) -> F32:
        """Hidden rows [R, H] -> logits [R, V]; a row's logits depend on that row alone."""
        ...


class ModelRunner:
    """Runs plans on one model and the storage of its KV blocks."""

    def __init__(self, model: LanguageModel, ops: Ops, storage: TierStorage) -> None:
        self._model = model
        self._ops = ops
        self._storage = storage
        self._inputs = InputBuilder(ops, storage.device)

    def move(self, moves: Sequence[Move], timeout: float) -> MoveOutcome:
        """Carry out moves; what has come of earlier ones (engine.core.Runner)."""
        return self._storage.execute(moves, timeout)

    @property
    def can_save(self) -> bool:
        """True if the disk would take more blocks at once."""
        return self._storage.can_save

    @property
    def can_save_later(self) -> bool:
        """True unless the disk refuses blocks; it may be busy now."""
        return self._storage.can_save_later

    def close(self, timeout: float) -> None:
        """Finish what is being written, for `timeout` seconds at most, and let the disk go."""
        self._storage.close(timeout)

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the tokens, sample. Failures of one sequence go to `failed`."""
        result = StepResult()
        if not plan.seqs:
            return result
        seqs = plan.seqs
        with self._storage.computing():
            self._step(seqs, result)
            for _ in range(1, plan.num_steps):
                if result.failed:
                    break
                seqs = tuple([s.after(result.sampled[s.seq_id][-1].token_id) for s in seqs])
                self._step(seqs, result)
        return result

    def _step(self, seqs: tuple[ScheduledSeq, ...], result: StepResult) -> None:
        inputs = self._inputs.build(seqs)
        hidden = self._model.hidden(inputs.batch)
        if inputs.draws:
            logits = self._model.logits(hidden[: inputs.num_sample_rows])
            sample(self._ops, logits, inputs.draws, result)
        for prompt in inputs.prompts:
            self._prompt(hidden, prompt, result)

    def _prompt(self, hidden: F32, prompt: PromptRows, result: StepResult) -> None:
        """Log-probabilities of one run's next tokens, a few rows of logits at a time."""
        seq = prompt.seq
        num_top = seq.prompt_logprobs or 0
        entries: list[TokenLogprob] = []
        try:
            for at in range(0, len(seq.next_token_ids), HEAD_ROWS):
                next_ids: Sequence[int] = seq.next_token_ids[at : at + HEAD_ROWS]
                first = prompt.first + at
                logits = self._model.logits(hidden[first : first + len(next_ids)])
                entries += prompt_logprobs(logits, next_ids, num_top)
        except SequenceError as error:
            result.failed[seq.seq_id] = str(error)
            return
        result.prompt_logprobs[seq.seq_id] = tuple(entries)

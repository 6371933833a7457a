"""The one message between the planes: what a step computes, and what came of it.

Plain data, comparable with ==, no arrays: equal inputs must give equal plans, live or simulated.
Nobody changes a plan; its classes are not frozen only because that makes them five times as dear to
build, and a step builds hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.kv.moves import Move, MoveOutcome
from octavo.request import SamplingParams, TokenLogprob


@dataclass(slots=True)
class SampleRequest:
    """Draw one token for the sequence `seq_id` from the logits of one row of its run.

    `row` counts from the run's end: -1 is its last token. `index` is the choice's number among the
    n of its request and enters the random key with `params.seed` and the position. `history`
    (prompt and output so far) is empty unless `params.needs_history`; its first `num_prompt_tokens`
    ids are the prompt. `banned_token_ids` may not be drawn (min_tokens). `takes_best`, which
    follows from the rest: the token of the largest logit is all that is wanted. Mostly nothing of
    this changes from step to step, and a sequence sends the same object again. `num_candidates`
    above 0: nothing is drawn, the tokens that may follow are wanted (beam search).
    """

    seq_id: str
    index: int
    params: SamplingParams
    num_prompt_tokens: int
    history: tuple[int, ...] = ()
    banned_token_ids: tuple[int, ...] = ()
    row: int = -1
    num_candidates: int = 0
    takes_best: bool = field(init=False)

    def __post_init__(self) -> None:
        params = self.params
        is_changed = params.logit_bias or params.needs_history or self.banned_token_ids
        wants_one_id = params.logprobs is None and not self.num_candidates
        self.takes_best = params.is_greedy and wants_one_id and not is_changed


@dataclass(slots=True)
class ScheduledSeq:
    """A run of tokens of one sequence to compute in this step.

        block table:  | b0 | b1 | b2 |..      covers positions [0, start + len(token_ids))
        positions:    0 ......... start ......... start + len(token_ids)
                      computed    token_ids: computed now, written to their slots

    `samples` is empty unless the run reaches the last known token of the sequence; a request with
    n > 1 has n entries there on the step that ends its prompt (the others are forked). The last
    `num_guesses` tokens are guesses at what will be drawn: there is a sample for each of them too,
    in order, from the row before it, and one for what follows the last. `prompt_logprobs`: number
    of alternatives wanted for every position of the run, or None; `next_token_ids` are then the
    tokens that follow positions start, start + 1, ... (the last may lack).
    """

    seq_id: str
    start: int
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    samples: tuple[SampleRequest, ...] = ()
    prompt_logprobs: int | None = None
    next_token_ids: tuple[int, ...] = ()
    num_guesses: int = 0

    @property
    def is_decode(self) -> bool:
        """True if one token is computed and one drawn, for which nothing else is needed."""
        if len(self.token_ids) != 1 or len(self.samples) != 1 or self.next_token_ids:
            return False
        sample = self.samples[0]
        needs_more = sample.num_candidates or sample.banned_token_ids or sample.params.needs_history
        return not needs_more

    def after(self, token_id: int) -> ScheduledSeq:
        """The run of the next step, if this one `is_decode` and has drawn `token_id`."""
        return ScheduledSeq(self.seq_id, self.start + 1, (token_id,), self.block_ids, self.samples)

    def position(self, sample: SampleRequest) -> int:
        """Where the token that `sample` draws will stand: the number of tokens before it."""
        return self.start + len(self.token_ids) + sample.row + 1


@dataclass(slots=True)
class StepPlan:
    """Everything the tensor plane needs for one step. `moves` are executed first, in order.

    `num_steps` above 1: all of `seqs` are decode runs, with room for as many tokens, and each step
    computes what the one before has drawn (`ScheduledSeq.after`).
    """

    step_id: int
    moves: tuple[Move, ...] = ()
    seqs: tuple[ScheduledSeq, ...] = ()
    num_steps: int = 1

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this plan."""
        return sum(len(s.token_ids) for s in self.seqs) * self.num_steps

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to execute."""
        return not self.seqs and not self.moves


@dataclass(slots=True)
class Candidates:
    """The likeliest next tokens of a beam, best first, ties by lowest id.

    `scores`: their log-probabilities with biases, bans and penalties (minus infinity is left out).
    `logprobs`: as the model gave them. `top`: the alternatives that `params.logprobs` asks for.
    """

    token_ids: tuple[int, ...]
    scores: tuple[float, ...]
    logprobs: tuple[float, ...]
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class StepResult:
    """What came of a plan.

    `sampled`: seq_id -> the tokens drawn, in the order of `samples`; of a plan of several steps,
    one for each step. `candidates`: seq_id -> what
    may follow, for a sample that asks for that. `prompt_logprobs`: seq_id -> one entry for each of
    the run's `next_token_ids`. `failed`: seq_id -> why it cannot go on (say,
    logits that are not numbers). `moves`: what came of this plan's moves and of earlier ones.
    `seconds`: how long all of it took.
    """

    sampled: dict[str, list[TokenLogprob]] = field(default_factory=dict)
    candidates: dict[str, Candidates] = field(default_factory=dict)
    prompt_logprobs: dict[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    moves: MoveOutcome = field(default_factory=MoveOutcome)
    seconds: float = 0.0

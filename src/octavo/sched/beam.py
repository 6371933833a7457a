"""Beam search: which beginnings of an output go on, and which outputs are the best.

Each of a request's beams is a sequence like any other: it is scheduled, preempted and resumed like
any other, and holds a block table that was forked from its parent's. When all beams of a group have
been computed, `extend` ranks what may follow them; sched/branches.py then forks those that go on
twice and drops those that do not. A beam that is computed waits, unscheduled, for its siblings.

    beams, best first      candidates               next beams
    A  -1.2           A+x  A+y  A+</s>  ..          A+x   (A goes on)
    B  -1.9           B+x  B+z  ..                  A+y   (a fork of A)
    C  -2.5           C+y  ..                       B+z   (B goes on; C is dropped)
                      A+</s> is complete: it stays in `finished` if it is among the best

The choice is a function of the candidates alone: ties go to the better beam, then the lower id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.request import Request, TokenLogprob
from octavo.sched.plan import Candidates

if TYPE_CHECKING:
    from octavo.sched.outputs import FinishReason
    from octavo.sched.sequence import Sequence


@dataclass(slots=True, eq=False)
class Beam:
    """What makes a sequence a beam. `score`: sum of its log-probabilities so far.

    `candidates`: what may follow its last token, once that has been computed.
    """

    group: BeamGroup
    score: float = 0.0
    logprobs: tuple[TokenLogprob, ...] = ()
    candidates: Candidates | None = None

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to compute until its siblings are there too."""
        return self.candidates is not None

    def followed_by(self, i: int) -> Beam:
        """This beam and its candidate number `i`."""
        following = self.candidates
        assert following is not None
        entry = TokenLogprob(following.token_ids[i], following.logprobs[i], following.top)
        return Beam(self.group, self.score + following.scores[i], (*self.logprobs, entry))


@dataclass(slots=True)
class Hypothesis:
    """A complete output. `score`: its beam's, divided by length ** length_penalty."""

    score: float
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    stop_reason: int | None


Extension = tuple["Sequence", Beam]
"""A beam of the next length and the sequence that holds all of it but its last token."""


@dataclass(slots=True, eq=False)
class BeamGroup:
    """The beams of one request. `live`: best first; `finished`: at most `width`, best first."""

    request: Request
    max_output: int  # tokens at which an output ends
    end_token_ids: tuple[int, ...]  # and those that end it before
    live: list[Sequence] = field(default_factory=list)
    finished: list[Hypothesis] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None

    @property
    def width(self) -> int:
        """Beams that are kept."""
        return self.request.params.num_seqs

    @property
    def num_candidates(self) -> int:
        """Per beam: so many that `width` of them end nothing."""
        return self.width + len(self.end_token_ids)

    @property
    def is_settled(self) -> bool:
        """True if all beams have been computed."""
        return all(_beam(seq).is_settled for seq in self.live)

    def extend(self) -> list[Extension]:
        """The beams of the next length, best first; none if the search is over.

        What is complete with the next token moves to `finished`.
        """
        ranked = self._ranked()
        length = self.live[0].num_output + 1
        going_on: list[Extension] = []
        complete: list[Beam] = []
        for place, (_, rank, token_id, i) in enumerate(ranked):
            parent = self.live[rank]
            ends = token_id in self.end_token_ids or length >= self.max_output
            if ends and place < self.width:
                complete.append(_beam(parent).followed_by(i))
            elif not ends and len(going_on) < self.width:
                going_on.append((parent, _beam(parent).followed_by(i)))
        self._keep(complete, length)
        return [] if not going_on or self._is_over(going_on[0][1].score, length) else going_on

    def _ranked(self) -> list[tuple[float, int, int, int]]:
        """(minus score, beam, token id, number of the candidate), best first."""
        ranked = []
        for rank, seq in enumerate(self.live):
            beam = _beam(seq)
            assert beam.candidates is not None
            pairs = zip(beam.candidates.token_ids, beam.candidates.scores, strict=True)
            for i, (token_id, score) in enumerate(pairs):
                ranked.append((-(beam.score + score), rank, token_id, i))
        return sorted(ranked)

    def _keep(self, complete: list[Beam], length: int) -> None:
        penalty = length**self.request.params.length_penalty
        stop_token_ids = self.request.params.stop_token_ids
        for beam in complete:
            last = beam.logprobs[-1].token_id
            reason: FinishReason = "stop" if last in self.end_token_ids else "length"
            stop_reason = last if reason == "stop" and last in stop_token_ids else None
            self.finished.append(
                Hypothesis(beam.score / penalty, beam.logprobs, reason, stop_reason)
            )
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)  # stable: earlier ones first
        del self.finished[self.width :]

    def _is_over(self, best_score: float, length: int) -> bool:
        """True if outputs enough are complete and no beam is expected to become better."""
        if len(self.finished) < self.width:
            return False
        params = self.request.params
        if params.early_stopping is True:
            return True
        if params.early_stopping == "never" and params.length_penalty > 0:
            length = self.max_output
        best_possible: float = best_score / length**params.length_penalty
        return best_possible <= self.finished[-1].score


def _beam(seq: Sequence) -> Beam:
    assert seq.beam is not None
    return seq.beam

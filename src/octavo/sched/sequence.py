"""A sequence: one choice of one request, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.request import Request, TokenLogprob
from octavo.sched.beam import Beam
from octavo.sched.plan import SampleRequest
from octavo.sched.speculation import PromptLookup


@dataclass(slots=True, eq=False)
class Sequence:
    """Token ids, of which the first `num_computed` have their keys and values in KV blocks.

        tokens:   | prompt ............ | output ....... |
        computed: | ....... num_computed                    chases len(tokens)

    When they meet, a token is drawn.

    `forks` are choices (or beams) of the same request that start from this one's prompt and do not
    exist yet.
    """

    seq_id: str
    request: Request
    index: int
    key: tuple[float, ...]  # policy order: lower runs first
    tokens: list[int]
    max_len: int  # tokens at which it ends, prompt included
    end_token_ids: tuple[int, ...]  # and those that end it before
    num_computed: int = 0
    num_reached: int = 0  # how far it had come when it lost blocks
    num_cached: int = 0  # prompt tokens found in the cache at first admission
    forks: tuple[int, ...] = ()
    has_started: bool = False
    is_running: bool = False
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    lookup: PromptLookup | None = None  # makes guesses; None: none are made
    beam: Beam | None = None  # None: its tokens are drawn
    num_prompt: int = field(init=False)
    wants_prompt_logprobs: bool = field(init=False)  # some are still to be delivered
    _samples: tuple[SampleRequest, ...] | None = None  # the same in every step from now on

    def __post_init__(self) -> None:
        self.num_prompt = len(self.request.prompt_token_ids)
        wanted = self.request.params.prompt_logprobs is not None
        self.wants_prompt_logprobs = wanted and self.index == 0

    @property
    def num_output(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens whose keys and values are not computed yet."""
        return len(self.tokens) - self.num_computed

    @property
    def num_seats(self) -> int:
        """Sequences that this one becomes: itself and its forks."""
        return 1 + len(self.forks)

    @property
    def max_matched_tokens(self) -> int | None:
        """How far a prefix hit may reach.

        A prompt whose log-probabilities are wanted must be computed.
        """
        return max(0, len(self.prompt_logprobs) - 1) if self.wants_prompt_logprobs else None

    def sample_requests(self, guesses: tuple[int, ...] = ()) -> tuple[SampleRequest, ...]:
        """The draws to make once all tokens are computed, and `guesses` after them.

        One for this choice and one for each fork; or, with guesses, one for each of them and one
        more.
        """
        if self._samples is not None and not guesses:
            return self._samples
        params = self.request.params
        if params.max_tokens == 0:
            return ()
        if guesses:
            return tuple(
                self._sample_request(self.index, guesses[:i], row=i - len(guesses) - 1)
                for i in range(len(guesses) + 1)
            )
        drawn = (self.index,) if self.beam is not None else (self.index, *self.forks)
        samples = tuple(self._sample_request(index) for index in drawn)
        if not (self.forks or params.needs_history or self.num_output < params.min_tokens):
            self._samples = samples
        return samples

    def _sample_request(
        self, index: int, guessed: tuple[int, ...] = (), row: int = -1
    ) -> SampleRequest:
        params = self.request.params
        num_output = self.num_output + len(guessed)
        banned: tuple[int, ...] = ()
        if num_output < params.min_tokens:
            banned = tuple(sorted({*self.request.eos_token_ids, *params.stop_token_ids}))
        return SampleRequest(
            seq_id=seq_id_of(self.request.request_id, index),
            index=index,
            params=params,
            num_prompt_tokens=self.num_prompt,
            history=(*self.tokens, *guessed) if params.needs_history else (),
            banned_token_ids=banned,
            row=row,
            num_candidates=0 if self.beam is None else self.beam.group.num_candidates,
        )

    def fork(self, index: int) -> Sequence:
        """Choice (or beam) `index` of the same request, at the same point."""
        child = Sequence(
            seq_id=seq_id_of(self.request.request_id, index),
            request=self.request,
            index=index,
            key=(*self.key[:-1], index),
            tokens=list(self.tokens),
            max_len=self.max_len,
            end_token_ids=self.end_token_ids,
            num_computed=self.num_computed,
            num_cached=self.num_cached,
            has_started=True,
            lookup=PromptLookup() if self.lookup is not None else None,
        )
        child.wants_prompt_logprobs = False
        return child


def seq_id_of(request_id: str, index: int) -> str:
    """The sequence id of choice `index` of a request."""
    return f"{request_id}#{index}"

"""Between text and token ids: what the synchronous and the asynchronous engine share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from octavo.engine.best_of import BestOf
from octavo.engine.choice_text import ChoiceText
from octavo.engine.limits import EngineLimits
from octavo.engine.outputs import TextDelta
from octavo.request import Request, SamplingParams
from octavo.sched.outputs import SeqOutput
from octavo.text.tokenizer import Tokenizer

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / the golden ratio: consecutive numbers land far apart


class Frontend:
    """Admits requests and turns their outputs into text."""

    def __init__(self, tokenizer: Tokenizer, limits: EngineLimits, seed: int) -> None:
        self.tokenizer = tokenizer
        self.limits = limits
        self._eos_token_ids = tuple(sorted(tokenizer.eos_token_ids))
        self._seed = seed
        self._num_seeded = 0
        self._choices: dict[str, list[ChoiceText]] = {}
        self._best_of: dict[str, BestOf] = {}

    def admit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
        now: float,
        num_waiting: int = 0,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> Request:
        """Check a request against the limits and settle what it left open. Raises RequestError."""
        params = self.limits.admit(prompt_token_ids, params, num_waiting)
        if params.seed is None:
            self._num_seeded += 1
            params = replace(params, seed=(self._seed + self._num_seeded * _GOLDEN) % 2**63)
        self._choices[request_id] = [
            ChoiceText(self.tokenizer, prompt_token_ids, params) for _ in range(params.num_choices)
        ]
        if params.num_choices > params.n:
            self._best_of[request_id] = BestOf(params.num_choices, params.n)
            if params.logprobs is None:  # they decide which are the best
                params = replace(params, logprobs=0)
        return Request(
            request_id=request_id,
            prompt_token_ids=tuple(prompt_token_ids),
            params=params,
            eos_token_ids=self._eos_token_ids,
            priority=priority,
            arrival_time=now,
            cache_salt=cache_salt,
        )

    def deltas(self, outputs: Iterable[SeqOutput]) -> Iterator[TextDelta]:
        """Text for outputs, in order; those of ended or forgotten choices are dropped.

        A delta that ends its choice while the output did not means: a stop string was met, the
        engine must end that choice (`stopped_early`).
        """
        for output in outputs:
            choices = self._choices.get(output.request_id)
            if choices is None:
                continue
            choice = choices[output.index]
            if choice.is_finished:
                continue
            yield choice.push(output)
            if choice.is_finished and all(c.is_finished for c in choices):
                del self._choices[output.request_id]

    def release(self, delta: TextDelta) -> Sequence[TextDelta]:
        """What may be shown now that `delta` is here: itself, unless the best are to be chosen."""
        best_of = self._best_of.get(delta.request_id) if self._best_of else None
        if best_of is None:
            return (delta,)
        if released := best_of.push(delta):
            del self._best_of[delta.request_id]
        return released

    def forget(self, request_id: str) -> None:
        """The request was aborted: its outputs are of no interest any more."""
        self._choices.pop(request_id, None)
        self._best_of.pop(request_id, None)

    def is_open(self, request_id: str) -> bool:
        """True until all choices of the request have ended, or it is forgotten."""
        return request_id in self._choices


def stopped_early(delta: TextDelta) -> bool:
    """True if a stop string ended the choice, so that the engine does not know yet."""
    return delta.finish_reason == "stop" and isinstance(delta.stop_reason, str)

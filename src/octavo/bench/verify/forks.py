"""Several choices of a request, against runs in which nothing is forked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from octavo.bench.verify.compare import Answer, Answers, Difference, differences, raw
from octavo.bench.verify.engines import answers, complete
from octavo.bench.verify.requests import Asked

NUM_CHOICES = 3
NUM_REQUESTS = 4
"""So many requests are enough: each of their choices is computed once more, alone."""

_DRAWN: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "use_beam_search": False,
    "beam_width": None,
}


def forked(asked: Sequence[Asked]) -> list[Asked]:
    """The first requests, drawn at temperature 1, with several choices each."""
    return [
        Asked(
            one.prompt,
            replace(one.params, n=NUM_CHOICES, seed=7 + i, **_DRAWN),
        )
        for i, one in enumerate(asked[:NUM_REQUESTS])
    ]


def unforked(
    llm: Any, asked: Sequence[Asked], outputs: Sequence[Any], got: Answers
) -> list[Difference]:
    """What of `got` differs from runs on `llm`, where nothing is cached.

    The first choice must be what a request for one choice gives. For every choice, its tokens as a
    prompt must have the log-probabilities with which they were drawn.
    """
    single = [Asked(one.prompt, replace(one.params, n=1)) for one in asked]
    found = differences(answers(complete(llm, single, is_alone=True)), [each[:1] for each in got])
    expected = [
        [
            _as_prompt(llm, one, output.prompt_token_ids, choice.token_ids)
            for choice in output.outputs
        ]
        for one, output in zip(asked, outputs, strict=True)
    ]
    return found + differences(expected, got)


def _as_prompt(llm: Any, one: Asked, prompt: Sequence[int], token_ids: Sequence[int]) -> Answer:
    num_top = one.params.logprobs
    params = replace(one.params, n=1, max_tokens=0, logprobs=None, prompt_logprobs=num_top)
    read = complete(llm, [Asked([*prompt, *token_ids], params)], is_alone=True)[0]
    return Answer(tuple(token_ids), tuple(map(raw, read.prompt_logprobs[len(prompt) :])))

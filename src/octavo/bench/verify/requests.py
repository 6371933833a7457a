"""The requests that every regime runs: drawn, always the same, or from a file."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from octavo.bench.verify.options import VerifyOptions
from octavo.engine.limits import EngineLimits
from octavo.errors import ConfigError, OctavoError
from octavo.request import SamplingParams
from octavo.text.prompt import encode_prompt
from octavo.text.tokenizer import Tokenizer

SEED = 1234
FIRST_ID, LAST_ID = 100, 30_000
"""Drawn ids: past the special tokens, and within the vocabulary of every supported family."""

NUM_SIBLINGS = 3
"""Requests that are added to those of a file."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. Its log-probabilities are wanted too, and it ends at `max_tokens` only."""

    prompt: list[int]
    params: SamplingParams

    @property
    def num_tokens(self) -> int:
        """Tokens of the output."""
        assert self.params.max_tokens is not None
        return self.params.max_tokens


def requests_of(options: VerifyOptions, limits: EngineLimits, tokenizer: Tokenizer) -> list[Asked]:
    """What to run. Raises ConfigError for a file that is none, or too long for the model."""
    if options.workload is not None:
        asked = _read(Path(options.workload), tokenizer)[: options.num_requests]
    else:
        asked = drawn(options.num_requests, limits.vocab_size, options.block_size)
    most = options.max_tokens
    if most is not None:
        asked = [
            Asked(a.prompt, replace(a.params, max_tokens=min(a.num_tokens, most))) for a in asked
        ]
    longest = limits.max_model_len
    if options.workload is None:
        return [Asked(a.prompt[: max(1, longest - a.num_tokens)], a.params) for a in asked]
    for i, one in enumerate(asked):
        if len(one.prompt) + one.num_tokens > longest:
            raise ConfigError(
                f"--workload: expected at most {longest} tokens in a request (the model's context"
                f" length), got {len(one.prompt)} + {one.num_tokens} in request {i}; leave it out"
                " or lower --max-tokens",
                "workload",
            )
    return asked + _siblings(asked, options.block_size)


def _siblings(asked: list[Asked], block_size: int) -> list[Asked]:
    """Requests that begin like the first few, to the middle of a block: something to share."""
    made = []
    for one, other in zip(asked[:NUM_SIBLINGS], asked[1:] + asked[:1], strict=False):
        cut = len(one.prompt) * 2 // 3 // block_size * block_size - block_size // 2
        if cut > 0:
            rest = [i for i in other.prompt if i != one.prompt[cut]]
            made.append(Asked((one.prompt[:cut] + rest)[: len(one.prompt)], one.params))
    return made


def drawn(num: int, vocab_size: int, block_size: int) -> list[Asked]:
    """Greedy ones and drawn ones, some with two choices, some searched with beams.

    Half of them begin alike, up to the middle of a block; some repeat a phrase, so that tokens can
    be guessed.
    """
    rng = random.Random(SEED)
    high = min(LAST_ID, vocab_size)

    def ids(count: int) -> list[int]:
        return [rng.randrange(min(FIRST_ID, high - 1), high) for _ in range(count)]

    common = ids(2 * block_size + block_size // 2)
    asked = []
    for i in range(num):
        begin = common if i % 2 else []
        phrase = ids(6)
        rest = phrase * rng.randint(4, 12) if i % 3 == 0 else ids(rng.randint(24, 150))
        asked.append(Asked([*begin, *rest], _params(i, rng.randint(24, 56))))
    return asked


def _params(i: int, max_tokens: int) -> SamplingParams:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.0},
        {"temperature": 1.0, "top_p": 0.95, "n": 2},
        {"temperature": 0.7, "top_k": 40, "repetition_penalty": 1.1, "presence_penalty": 0.2},
        {"temperature": 0.0, "use_beam_search": True, "beam_width": 4, "n": 2},
    ]
    kind = kinds[i % len(kinds)]
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, logprobs=2, seed=i, **kind)


def _read(path: Path, tokenizer: Tokenizer) -> list[Asked]:
    expected = "a JSON file of requests with a prompt and max_tokens of at least 1 each"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["requests"]
        asked = [
            Asked(
                encode_prompt(tokenizer, entry["prompt"]),
                SamplingParams(
                    max_tokens=entry["max_tokens"], temperature=0.0, ignore_eos=True, logprobs=2
                ),
            )
            for entry in entries
        ]
        if all(a.prompt and a.params.max_tokens for a in asked) and asked:
            return asked
        problem = "one that is empty"
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, KeyError, TypeError, OctavoError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise ConfigError(f"--workload: expected {expected}, got {path}: {problem}", "workload")

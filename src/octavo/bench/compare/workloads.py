"""The requests to compare with: two workloads that are drawn, or files."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.bench.options import DatasetOptions
from octavo.bench.workload import files
from octavo.bench.workload.sample import Sample, Tokenizer
from octavo.errors import ConfigError

FIRST_ID = 3
"""Token ids are drawn from here on, past the special ones of most vocabularies."""

LIMIT = 1024
"""Context that the lengths below are for; they shrink with a shorter one."""

PROMPT, OUTPUT = (32, 512), (16, 256)
"""Least and greatest lengths of `mixed`."""

PREFIX, TAIL, ANSWER = 512, (64, 256), (48, 160)
"""Of `shared-prefix`: the beginning, and least and greatest lengths of what follows."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of token ids that all arrive at once; outputs have their full length."""

    name: str
    samples: tuple[Sample, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return max(len(s.prompt) + s.output_len for s in self.samples)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all requests."""
        return sum(len(s.prompt) for s in self.samples)

    @property
    def num_output_tokens(self) -> int:
        """Of all requests."""
        return sum(s.output_len for s in self.samples)


class Draw:
    """Random lengths and token ids, the same for the same seed; requests of at most `limit`
    tokens."""

    def __init__(self, seed: str, vocab_size: int, limit: int) -> None:
        self._random = random.Random(seed)
        self._vocab_size = vocab_size
        self._scale = min(1.0, limit / LIMIT)

    def tokens(self, count: int) -> tuple[int, ...]:
        """Token ids."""
        return tuple(self._random.choices(range(FIRST_ID, self._vocab_size), k=count))

    def scaled(self, length: int) -> int:
        """A length, shorter where the context is."""
        return max(1, int(length * self._scale))

    def log_uniform(self, bounds: tuple[int, int]) -> int:
        """A length; every doubling is as likely as the next."""
        low, high = (math.log(self.scaled(bound)) for bound in bounds)
        return int(math.exp(self._random.uniform(low, high)))

    def uniform(self, bounds: tuple[int, int]) -> int:
        """A length; all are as likely."""
        return self._random.randint(*(self.scaled(bound) for bound in bounds))


def mixed(draw: Draw, num_prompts: int) -> Iterator[Sample]:
    """Lengths as different as in a chat: as many of 16 to 32 tokens as of 128 to 256."""
    for _ in range(num_prompts):
        yield Sample(draw.tokens(draw.log_uniform(PROMPT)), draw.log_uniform(OUTPUT))


def shared_prefix(draw: Draw, num_prompts: int) -> Iterator[Sample]:
    """One long beginning (a system prompt, a document), then a question and an answer."""
    prefix = draw.tokens(draw.scaled(PREFIX))
    for _ in range(num_prompts):
        yield Sample(prefix + draw.tokens(draw.uniform(TAIL)), draw.uniform(ANSWER))


DRAWN = {"mixed": mixed, "shared-prefix": shared_prefix}


def load(name: str, num_prompts: int, draw: Draw, tokenizer: Callable[[], Tokenizer]) -> Workload:
    """A workload by its name, or from a file. Raises ConfigError."""
    if name in DRAWN:
        return Workload(name, tuple(DRAWN[name](draw, num_prompts)))
    path = Path(name)
    if not path.exists():
        raise ConfigError(
            f"--workload: expected {', '.join(DRAWN)} or a file, got {name}", "workload"
        )
    try:
        found = list(files.custom(path, DatasetOptions(num_prompts=2**31)))
    except ConfigError as error:
        message = str(error).replace("--dataset-path", "--workload")
        raise ConfigError(message, "workload") from None
    if not found:
        raise ConfigError(f"--workload: no request in {path}", "workload")
    if any(isinstance(s.prompt, str) for s in found):
        encode = tokenizer().encode
        found = [
            Sample(tuple(encode(s.prompt)) if isinstance(s.prompt, str) else s.prompt, s.output_len)
            for s in found
        ]
    return Workload(path.stem, tuple(found))

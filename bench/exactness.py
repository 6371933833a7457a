"""The exactness contract as a table: the same requests run in many ways, compared bit for bit.

    python bench/exactness.py [--workload FILE]

FILE is JSON: {"requests": [{"prompt": [token ids], "max_tokens": 16}, ...]}. Without one the requests
are drawn, always the same: 64 of 32 to 512 random token ids, 16 to 256 new tokens each.

The first way is the cold one: each request alone, nothing cached. Every other way must give the
same tokens and the same log-probabilities. Preemptions and prefix hits are counted, so that a way
in which nothing happened shows. Exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 1234
NUM_DRAWN = 64
TOKEN_IDS = (100, 30_000)
"""Drawn ids: past the special tokens, and within the vocabulary of every supported family."""


@dataclass(frozen=True)
class Way:
    """One way of running the requests. `settings` are keyword arguments of octavo.LLM."""

    name: str
    settings: dict[str, Any]
    alone: bool = False  # one request after the other
    passes: int = 1  # the last pass is compared; earlier ones fill the prefix cache


@dataclass(frozen=True)
class Outcome:
    """What came of one way. `logprobs[i]`: the raw bytes of the float64 values of request i."""

    token_ids: list[tuple[int, ...]]
    logprobs: list[bytes]
    num_preemptions: int
    num_cached_tokens: int
    seconds: float


COLD = Way("alone, cold", {"enable_prefix_caching": False, "threads": 1}, alone=True)


def ways(num_kv_blocks: int) -> list[Way]:
    """Every way but the cold one. `num_kv_blocks`: so few that running sequences are preempted."""
    few = {"num_kv_blocks": num_kv_blocks}
    off = {"enable_prefix_caching": False}
    return [
        Way("alone, 2 threads, prefix cache", {"threads": 2}, alone=True),
        Way("together, chunks of 2048", {"max_num_batched_tokens": 2048, "threads": 2, **off}),
        Way("together, chunks of 256", {"max_num_batched_tokens": 256, "threads": 2, **off}),
        Way("together, chunks of 37", {"max_num_batched_tokens": 37, "threads": 1, **off}),
        Way("together again, prefix cache full", {"threads": 2}, passes=2),
        Way("together, few blocks", {"threads": 2, **few}),
        Way("together, few blocks, no prefix cache", {"threads": 1, **few, **off}),
        Way(
            "few blocks, chunks of 37, again",
            {"max_num_batched_tokens": 37, "threads": 2, **few},
            passes=2,
        ),
    ]


def run(way: Way, model: str, prompts: list[list[int]], max_tokens: list[int]) -> Outcome:
    """Run the requests greedily, on after the end-of-sequence token, with logprobs."""
    from octavo import LLM, SamplingParams

    params = [
        SamplingParams(max_tokens=n, temperature=0.0, ignore_eos=True, logprobs=0)
        for n in max_tokens
    ]
    begin = time.perf_counter()
    with LLM(model=model, **way.settings) as llm:
        for _ in range(way.passes):
            if way.alone:
                pairs = zip(prompts, params, strict=True)
                outputs = [llm.generate([p], [s], use_tqdm=False)[0] for p, s in pairs]
            else:
                outputs = llm.generate(prompts, params, use_tqdm=False)
        stats = llm.stats()
        llm.built.core.check()
    first = [o.outputs[0] for o in outputs]
    return Outcome(
        [tuple(c.token_ids) for c in first],
        [raw_logprobs(c) for c in first],
        stats.num_preemptions,
        sum(o.num_cached_tokens for o in outputs),
        time.perf_counter() - begin,
    )


def raw_logprobs(choice: Any) -> bytes:
    """The log-probability of each chosen token, as the bytes of a float64."""
    return b"".join(struct.pack("d", entry.logprob) for entry in choice.logprobs)


def differences(a: Outcome, b: Outcome) -> tuple[int, int]:
    """Requests whose tokens differ, and requests whose log-probabilities differ in any bit."""
    tokens = sum(x != y for x, y in zip(a.token_ids, b.token_ids, strict=True))
    logprobs = sum(x != y for x, y in zip(a.logprobs, b.logprobs, strict=True))
    return tokens, logprobs


def draw_requests() -> list[dict[str, Any]]:
    """The same requests each time, in the form of a workload file."""
    rng = random.Random(SEED)
    return [
        {
            "prompt": [rng.randrange(*TOKEN_IDS) for _ in range(rng.randint(32, 512))],
            "max_tokens": rng.randint(16, 256),
        }
        for _ in range(NUM_DRAWN)
    ]


def read_requests(path: Path) -> list[dict[str, Any]]:
    """The requests of a workload file; exits with one line if it cannot be read as such."""
    try:
        requests = json.loads(path.read_text())["requests"]
        if all(r["max_tokens"] >= 1 and r["prompt"] for r in requests):
            return list(requests)
        problem = "expected prompts and max_tokens of at least one token"
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, KeyError, TypeError) as error:
        problem = f"expected a workload as --help shows it, got {type(error).__name__}: {error}"
    sys.exit(f"exactness.py: {path}: {problem}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", type=Path, help="JSON file of requests (default: drawn)")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--requests", type=int, help="only the first N")
    parser.add_argument("--max-tokens", type=int, help="cut every output to this")
    parser.add_argument("--num-kv-blocks", type=int, default=128, help="the few blocks")
    return parser.parse_args()


def main() -> int:
    args = parse()
    everything = read_requests(args.workload) if args.workload else draw_requests()
    requests = everything[: args.requests]
    prompts = [r["prompt"] for r in requests]
    max_tokens = [min(r["max_tokens"], args.max_tokens or r["max_tokens"]) for r in requests]
    print(f"{len(prompts)} requests, {sum(map(len, prompts))} + {sum(max_tokens)} tokens\n")
    print("| run | tokens differ | logprobs differ | preemptions | cached tokens | seconds |")
    print("|---|---|---|---|---|---|")
    cold: Outcome | None = None
    worst = 0
    for way in [COLD, *ways(args.num_kv_blocks)]:
        outcome = run(way, args.model, prompts, max_tokens)
        cold = cold or outcome
        tokens, logprobs = differences(cold, outcome)
        worst = max(worst, tokens, logprobs)
        print(
            f"| {way.name} | {tokens} of {len(prompts)} | {logprobs} of {len(prompts)} "
            f"| {outcome.num_preemptions} | {outcome.num_cached_tokens} | {outcome.seconds:.0f} |",
            flush=True,
        )
    print("\nidentical, bit for bit" if not worst else "\nDIFFERENT")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())

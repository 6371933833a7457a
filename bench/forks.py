"""KV memory saved by forks: choices and beams of one request share the blocks they have in common.

    python bench/forks.py --text ../shared/text/wikitext2_test.txt

Requests with lengths spread around the means of Alpaca and ShareGPT (vLLM paper, figure 11) run
together on the real model, with n = 2, 4, 6 choices and with 2, 4, 6 beams. While each step
computes, the live tables are counted: blocks that would be needed without sharing, and blocks in
use. The share that is saved is printed beside the paper's (figure 15 and section 6.3; OPT-13B on
the data sets themselves). Nothing else is shared: prompts differ, and prefix caching is off.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from octavo import LLM, SamplingParams
from octavo.sched.plan import StepPlan, StepResult

TEXT = Path(__file__).resolve().parents[2] / "shared" / "text" / "wikitext2_test.txt"
SPREAD = 0.6  # of the logarithm of lengths

WORKLOADS = {"Alpaca": (19.31, 58.45), "ShareGPT": (161.31, 337.99)}
"""Name -> mean tokens of prompts and of outputs."""

PAPER = {
    ("Alpaca", "choices"): ("6.1", "8.5", "9.8"),
    ("Alpaca", "beams"): ("37.6", "53.1", "55.2"),
    ("ShareGPT", "choices"): ("16.2-30.5",) * 3,
    ("ShareGPT", "beams"): ("44.3-66.3",) * 3,
}
"""Per cent of blocks saved for 2, 4 and 6."""


@dataclass(frozen=True)
class Saved:
    """Means over the steps; `saved` in per cent of `num_blocks_without`."""

    workload: str
    kind: str
    number: int
    saved: float
    paper: str
    num_blocks: float
    num_blocks_without: float
    num_steps: int
    num_copies: int


class Counter:
    """Counts blocks while steps compute: tables are extended and copied by then."""

    def __init__(self, llm: LLM) -> None:
        self._core = llm.built.core
        self._execute = self._core.runner.execute
        self._core.runner.execute = self.execute  # type: ignore[method-assign]
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self.used = self.saved = self.steps = self.copies = 0

    def execute(self, plan: StepPlan) -> StepResult:
        """The runner's, counted."""
        stats = self._core.stats()
        self.used += stats.num_blocks_used
        self.saved += stats.num_blocks_saved_by_sharing
        self.copies += len(plan.moves)
        self.steps += 1
        return self._execute(plan)


def lengths(mean: float, num: int, rng: random.Random) -> list[int]:
    """`num` lengths, log-normal around `mean`, which is their mean."""
    raw = [rng.lognormvariate(0.0, SPREAD) for _ in range(num)]
    scale = mean * num / sum(raw)
    return [max(1, round(x * scale)) for x in raw]


def requests(
    tokens: list[int], name: str, kind: str, number: int, num: int
) -> tuple[list[list[int]], list[SamplingParams]]:
    """Prompts cut from a text, and parameters; the same for every kind and number."""
    rng = random.Random(7)
    mean_prompt, mean_output = WORKLOADS[name]
    prompts, start = [], 0
    for length in lengths(mean_prompt, num, rng):
        prompts.append(tokens[start : start + length])
        start += length
    how = {"use_beam_search": True} if kind == "beams" else {"temperature": 1.0}
    params = [
        SamplingParams(n=number, max_tokens=length, ignore_eos=True, seed=i, **how)
        for i, length in enumerate(lengths(mean_output, num, rng))
    ]
    return prompts, params


def measure(llm: LLM, counter: Counter, tokens: list[int], num: int) -> list[Saved]:
    """All workloads, kinds and numbers, each printed as it comes."""
    found = []
    print(f"{'lengths of':<12}{'':<9}{'number':>7}{'saved':>9}{'paper':>12}   blocks, without")
    for (name, kind), paper in PAPER.items():
        for number, published in zip((2, 4, 6), paper, strict=True):
            counter.reset()
            llm.generate(*requests(tokens, name, kind, number, num), use_tqdm=False)
            without = counter.used + counter.saved
            row = Saved(
                name, kind, number, 100 * counter.saved / without, published,
                counter.used / counter.steps, without / counter.steps,
                counter.steps, counter.copies,
            )  # fmt: skip
            found.append(row)
            print(
                f"{name:<12}{kind:<9}{number:>7}{row.saved:>8.1f}%{published:>11}%"
                f"   {row.num_blocks:.0f}, {row.num_blocks_without:.0f}",
                flush=True,
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--text", type=Path, default=TEXT, help="text to cut prompts from")
    parser.add_argument("--num-requests", type=int, default=8, help="that run together")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    with LLM(
        args.model,
        block_size=args.block_size,
        max_num_seqs=6 * args.num_requests,
        num_kv_blocks=6 * args.num_requests * 2048 // args.block_size,
        enable_prefix_caching=False,
        threads=args.threads,
    ) as llm:
        text = args.text.read_text(encoding="utf-8")[:100_000]
        found = measure(llm, Counter(llm), llm.built.tokenizer.encode(text), args.num_requests)
    if args.json is not None:
        args.json.write_text(json.dumps({"runs": [asdict(row) for row in found]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

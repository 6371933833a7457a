"""What tiers and block-by-block preemption bring, and what they cost when they are not needed.

    python bench/tiers.py preemption --workload ../shared/bench/mixed64.json
    python bench/tiers.py returning
    python bench/tiers.py cost --workload ../shared/bench/mixed64.json

preemption: the workload with about a third of the blocks that it would use at its peak, and a host
tier, in each of the three preemption modes in turns: blocks copied per preemption, tokens per
second. The pool has another size in each round, as there are few preemptions in one of them.
returning: time to the first token of a conversation of 2,000 tokens after a restart, with its
blocks on the disk, and cold.
cost: one stream, and the workload, with memory for all: tiers on against off, in turns.
Tokens are compared throughout; exits 1 if any differ.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from octavo import LLM, SamplingParams
from octavo.kv.moves import Demote, Promote

MODES = ("blocks", "sequence", "recompute")
SIZES = (1.0, 0.9, 1.1, 0.95, 1.05, 0.85)
"""Of the pool, in a round each, in thirds of the peak need."""

TOKEN_IDS = (100, 30_000)

Tokens = list[tuple[int, ...]]


def read_workload(path: Path | None) -> tuple[list[list[int]], list[int]]:
    """Prompts and output lengths of a file in the form of mixed64.json; without one, drawn ones."""
    if path is not None:
        requests = json.loads(path.read_text())["requests"]
        return [r["prompt"] for r in requests], [r["max_tokens"] for r in requests]
    rng = random.Random(64)
    prompts = [[rng.randrange(*TOKEN_IDS) for _ in range(rng.randint(32, 512))] for _ in range(64)]
    return prompts, [rng.randint(16, 256) for _ in prompts]


def run(llm: LLM, prompts: Sequence[list[int]], lengths: Sequence[int]) -> tuple[Tokens, float]:
    """All requests at once, greedily; (tokens, seconds)."""
    params = [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for n in lengths]
    start = time.perf_counter()
    outputs = llm.generate(list(prompts), params, use_tqdm=False)
    return [tuple(o.outputs[0].token_ids) for o in outputs], time.perf_counter() - start


def peak_blocks(model: str, prompts: list[list[int]], lengths: list[int]) -> tuple[int, Tokens]:
    """Blocks in use at the busiest moment when there are enough, and the tokens."""
    with LLM(model=model) as llm:
        core, used = llm.built.core, [0]
        core.on_step = lambda plan, seconds: used.append(core.scheduler.kv.pool.num_used)
        tokens, _ = run(llm, prompts, lengths)
    return max(used), tokens


class Copies:
    """Counts the blocks that an engine copies for preempted sequences, out and back.

    Blocks of requests that have ended move to the host as well when their room is needed; they are
    the same in all modes and are counted apart.
    """

    def __init__(self, llm: LLM) -> None:
        self.num_preempted = self.num_others = 0
        self._scheduler = llm.built.core.scheduler
        self._runner: Any = llm.built.core.runner
        self._move = self._runner.move
        self._runner.move = self.move

    def move(self, moves: Sequence[Any], timeout: float) -> Any:
        """Stands in for the runner's own."""
        tables = self._scheduler.kv.tables
        preempted = {
            key.hash
            for seq in self._scheduler.waiting
            if seq.has_started and seq.seq_id in tables
            for key in tables[seq.seq_id].chain
        }
        for move in moves:
            if isinstance(move, Promote):
                self.num_preempted += 1
            elif isinstance(move, Demote):
                # Its own blocks, and its tail, which follows one of them.
                is_own = move.key.hash in preempted or move.key.parent in preempted
                self.num_preempted += is_own
                self.num_others += not is_own
        return self._move(moves, timeout)


def preemption(args: argparse.Namespace) -> bool:
    prompts, lengths = read_workload(args.workload)
    peak, expected = peak_blocks(args.model, prompts, lengths)
    sizes = [round(peak / 3 * SIZES[i % len(SIZES)]) for i in range(args.rounds)]
    print(f"peak need {peak} blocks, given {sizes}, host tier {args.host_kv_bytes}")
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    counts = {mode: Counter[str]() for mode in MODES}
    equal = True
    for i, few in enumerate(sizes):
        turn = i % len(MODES)  # nobody is always first
        for mode in (*MODES[turn:], *MODES[:turn]):
            settings = {"preemption_mode": mode, "host_kv_bytes": args.host_kv_bytes}
            with LLM(model=args.model, num_kv_blocks=few, **settings) as llm:
                copies = Copies(llm)
                tokens, took = run(llm, prompts, lengths)
                stats = llm.stats()
            equal &= tokens == expected
            seconds[mode].append(took)
            found = Counter(
                preemptions=stats.num_preemptions,
                own=copies.num_preempted,
                others=copies.num_others,
                again=stats.num_recomputed_tokens,
            )
            print(f"{few} blocks, {mode}: {dict(found)}, {took:.1f} s")
            counts[mode] += found
    print(
        "| mode | preemptions | blocks copied for them | each | others | recomputed tokens", end=""
    )
    print(" | tokens/s |\n|---|---|---|---|---|---|---|")
    each = {mode: c["own"] / max(1, c["preemptions"]) for mode, c in counts.items()}
    for mode, c in counts.items():
        rate = sum(lengths) / statistics.median(seconds[mode])
        print(f"| {mode} | {c['preemptions']} | {c['own']} | {each[mode]:.1f}", end="")
        print(f" | {c['others']} | {c['again']} | {rate:.0f} |")
    for mode in MODES[1:]:
        ratios = [other / own for other, own in zip(seconds[mode], seconds["blocks"], strict=True)]
        print(f"throughput of blocks / {mode}: {statistics.median(ratios):.2f}")
    if each["blocks"]:
        print(f"copied per preemption, sequence / blocks: {each['sequence'] / each['blocks']:.1f}")
    return equal


def returning(args: argparse.Namespace) -> bool:
    rng = random.Random(2000)
    warm, cold = [], []
    equal = True
    for _ in range(args.rounds):
        history = [rng.randrange(*TOKEN_IDS) for _ in range(2000)]
        turn = history + [rng.randrange(*TOKEN_IDS) for _ in range(24)]
        with tempfile.TemporaryDirectory() as disk:
            settings = {"model": args.model, "disk_kv_path": disk, "max_model_len": 4096}
            with LLM(**settings) as llm:
                run(llm, [history], [16])
            with LLM(**settings) as llm:
                run(llm, [turn[:1]], [4])  # the first step of a process is slower
                again, seconds = run(llm, [turn], [1])
                assert llm.stats().num_promoted_disk, "nothing came from the disk"
                warm.append(seconds)
        with LLM(model=args.model, max_model_len=4096) as llm:
            run(llm, [turn[:1]], [4])
            fresh, seconds = run(llm, [turn], [1])
            cold.append(seconds)
        equal &= again == fresh
    a, b = statistics.median(cold) * 1e3, statistics.median(warm) * 1e3
    print(f"first token of turn 2 after a restart: {b:.1f} ms from the disk, {a:.1f} ms cold")
    ratios = sorted(c / w for c, w in zip(cold, warm, strict=True))
    print(
        f"ratio of medians {a / b:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f}), {args.rounds} rounds"
    )
    return equal


def cost(args: argparse.Namespace) -> bool:
    prompts, lengths = read_workload(args.workload)
    rng, equal = random.Random(5), True
    ratios: dict[str, list[float]] = {"one stream": [], "workload": []}
    with tempfile.TemporaryDirectory() as disk, ExitStack() as stack:
        tiers = {"host_kv_bytes": "1G", "disk_kv_path": disk}
        off = stack.enter_context(LLM(model=args.model))
        on = stack.enter_context(LLM(model=args.model, **tiers))
        run(off, prompts[:4], lengths[:4])
        run(on, prompts[:4], lengths[:4])
        for _ in range(args.rounds):
            first = rng.randrange(*TOKEN_IDS)  # no prefix is known from the round before
            one = [[first, *range(1000, 1127)]]
            many = [[first, *prompt[1:]] for prompt in prompts]
            for name, what, new in (("one stream", one, [128]), ("workload", many, lengths)):
                a, slow = run(on, what, new)
                b, fast = run(off, what, new)
                equal &= a == b
                ratios[name].append(fast / slow)
    for name, values in ratios.items():
        middle = statistics.median(values)
        print(
            f"{name}: speed with tiers / without {middle:.3f} ({min(values):.3f} to {max(values):.3f})"
        )
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("preemption", "returning", "cost"))
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--workload", type=Path, help="JSON file of requests (default: drawn)")
    parser.add_argument("--host-kv-bytes", default="1G")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    equal = {"preemption": preemption, "returning": returning, "cost": cost}[args.what](args)
    print("tokens are equal" if equal else "TOKENS DIFFER")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())

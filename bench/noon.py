"""Noon: does a server that has been talking all morning still answer as it did at first?

    python bench/noon.py [--minutes 10] [--png noon.png]

200 conversations of several turns arrive over a day that is compressed to some minutes. Old ones
come back after long pauses, all begin with one system prompt, and the KV memory holds only a few of
them. Two servers are put through the same day, one after the other: one with prefix cache, host and
disk tier, and one with none of these, which computes each history again. For each tenth of the day:
median time to the first token (TTFT) and time per output token (TPOT), and beside them how long the
machine took to copy some memory before turns that found it idle: shared machines change meanwhile.

Needs octavo[bench] (httpx, matplotlib).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

SEED = 12
PORT = 8765
TOKEN_IDS = (100, 30_000)
"""Drawn ids: past the special tokens, and within the vocabulary of every supported family."""

SYSTEM_TOKENS = 64
USER_TOKENS = (24, 72)
OUTPUT_TOKENS = (16, 48)
MOST_TURNS = 8
FIRST_TURN = (-0.8, 0.97)
"""Share of the day at which a conversation begins. What would have been said before the day began is
left out: this way all hours are about equally busy."""
SHORT_PAUSE = (0.004, 0.012)
LONG_PAUSE = (0.05, 0.40)
"""Pauses between turns as shares of the day; two in five are long."""

PARTS = 10
COPIED = 32 << 20
"""Bytes that are copied to see how fast the machine is."""


@dataclass(frozen=True)
class Turn:
    """`at`: share of the day at which it is due, if the answer before is there by then."""

    at: float
    user: list[int]
    max_tokens: int


@dataclass(frozen=True)
class Measured:
    """One turn: when it was sent (share of the day), seconds to the first and per later token.

    `copy`: seconds that the machine took to copy COPIED bytes just before, if no turn was under way.
    """

    at: float
    ttft: float
    tpot: float
    num_prompt: int
    num_cached: int
    copy: float | None


class Machine:
    """How fast it is, asked while nobody talks."""

    def __init__(self) -> None:
        self.num_turns = 0  # under way
        self._source, self._to = np.ones((2, COPIED), np.uint8)

    def look(self) -> float | None:
        """Seconds for one copy; None if a turn is under way."""
        if self.num_turns:
            return None
        start = time.perf_counter()
        np.copyto(self._to, self._source)
        return time.perf_counter() - start


def draw_day(num_conversations: int) -> tuple[list[int], list[list[Turn]]]:
    """The system prompt and the turns of each conversation: always the same day."""
    rng = random.Random(SEED)

    def tokens(num: int) -> list[int]:
        return [rng.randrange(*TOKEN_IDS) for _ in range(num)]

    system, conversations = tokens(SYSTEM_TOKENS), []
    for _ in range(num_conversations):
        at, turns = rng.uniform(*FIRST_TURN), []
        while at < 1 and len(turns) < MOST_TURNS:
            turn = Turn(at, tokens(rng.randint(*USER_TOKENS)), rng.randint(*OUTPUT_TOKENS))
            if at >= 0:
                turns.append(turn)
            at += rng.uniform(*(LONG_PAUSE if rng.random() < 0.4 else SHORT_PAUSE))
        conversations.append(turns)
    return system, conversations


async def complete(
    client: httpx.AsyncClient, prompt: list[int], max_tokens: int
) -> tuple[list[int], float, float, int]:
    """(output ids, TTFT, TPOT, cached prompt tokens) of one streamed completion."""
    body = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    start, first, last = time.perf_counter(), 0.0, 0.0
    ids: list[int] = []
    cached = 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event: dict[str, Any] = json.loads(line[6:])
            usage = event.get("usage")
            if usage:
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            for choice in event["choices"]:
                if choice.get("token_ids"):
                    last = time.perf_counter()
                    first = first or last
                    ids += choice["token_ids"]
    return ids, first - start, (last - first) / max(1, len(ids) - 1), cached


async def converse(
    client: httpx.AsyncClient,
    machine: Machine,
    history: list[int],
    turns: list[Turn],
    begin: float,
    day: float,
) -> list[Measured]:
    """One conversation, each turn at its time."""
    measured = []
    for turn in turns:
        await asyncio.sleep(max(0.0, begin + turn.at * day - time.perf_counter()))
        history = history + turn.user
        copy = machine.look()
        at = (time.perf_counter() - begin) / day
        machine.num_turns += 1
        ids, ttft, tpot, cached = await complete(client, history, turn.max_tokens)
        machine.num_turns -= 1
        measured.append(Measured(at, ttft, tpot, len(history), cached, copy))
        history = history + ids
    return measured


async def live_through(base: str, num_conversations: int, seconds: float) -> list[Measured]:
    """The whole day; turns in the order in which they were sent."""
    system, conversations = draw_day(num_conversations)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base, timeout=120, limits=limits) as client:
        await complete(client, system, 8)  # warm up
        begin = time.perf_counter()
        machine = Machine()
        days = [converse(client, machine, system, turns, begin, seconds) for turns in conversations]
        results = await asyncio.gather(*days)
    return sorted((m for day in results for m in day), key=lambda m: m.at)


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """A server on PORT, ready; ended afterwards."""
    base = f"http://127.0.0.1:{PORT}"
    process = subprocess.Popen([*command, "--port", str(PORT)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if process.poll() is not None:
                sys.exit(f"noon.py: the server ended with status {process.returncode}")
            try:
                if httpx.get(base + "/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield base
    finally:
        process.terminate()
        process.wait(60)


def by_tenth(turns: list[Measured]) -> list[list[Measured]]:
    """The turns of each tenth of the day."""
    return [[m for m in turns if i <= m.at * PARTS < i + 1] for i in range(PARTS)]


def medians(turns: list[Measured]) -> tuple[float, float]:
    """Median TTFT and TPOT in milliseconds."""
    ttft = statistics.median(m.ttft for m in turns) * 1e3
    return ttft, statistics.median(m.tpot for m in turns) * 1e3


def copy_ms(turns: list[Measured]) -> float:
    """Median time of a copy in milliseconds."""
    return statistics.median(m.copy for m in turns if m.copy is not None) * 1e3


def effects(turns: list[Measured], what: str) -> tuple[float, float]:
    """Share by which `what` grows over the day, and with what the last tenth's contexts are longer by.

    Of turns that found the machine idle: a linear fit with the least sum of absolute errors, over the
    time of day, the context, the tokens to compute, and the time of the copy just before. Where nothing
    is cached the context is what is to be computed, and only both together can be told from the rest.
    """
    alone = [m for m in turns if m.copy is not None]
    y = np.array([getattr(m, what) for m in alone])
    x = _causes(alone)
    means = x.mean(axis=0)
    weights = np.ones(len(y))
    for _ in range(50):
        root = np.sqrt(weights)
        fit = np.linalg.lstsq(x / means * root[:, None], y * root, rcond=None)[0] / means
        weights = 1 / np.maximum(np.abs(y - x @ fit), 1e-4 * np.median(y))
    first, *_, last = (_causes(part).mean(axis=0) for part in by_tenth(alone))
    _, hours, context, to_compute, _ = fit * (last - first) / np.median(y)
    return hours, context + to_compute


def _causes(turns: list[Measured]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """What the time of a turn may depend on: [turns, 5]."""
    rows = [(1.0, m.at, m.num_prompt, m.num_prompt - m.num_cached, m.copy) for m in turns]
    return np.array(rows, np.float64)


def report(name: str, turns: list[Measured]) -> None:
    """A table of tenths, and the last against the first."""
    print(f"\n{name}: {len(turns)} turns")
    print("| tenth | turns | prompt tokens | of these cached | TTFT ms | TPOT ms | copy ms |")
    print("|---|---|---|---|---|---|---|")
    for i, part in enumerate(by_tenth(turns), 1):
        prompt, cached = (sum(getattr(m, f) for m in part) for f in ("num_prompt", "num_cached"))
        ttft, tpot = medians(part)
        row = [i, len(part), prompt, f"{cached / prompt:.0%}", f"{ttft:.1f}", f"{tpot:.2f}"]
        print("|", " | ".join(map(str, row)), f"| {copy_ms(part):.2f} |")
    first, *_, last = by_tenth(turns)
    (a, b), (c, d) = medians(first), medians(last)
    machine = copy_ms(last) / copy_ms(first)
    print(f"last tenth / first tenth: TTFT {c / a:.2f}, TPOT {d / b:.2f}", end="")
    print(f"; the machine itself, copying: {machine:.2f}")
    for what in ("ttft", "tpot"):
        hours, length = effects(turns, what)
        print(f"{what.upper()} on an even machine: {hours:+.1%} by the hour,", end=" ")
        print(f"{length:+.1%} by longer conversations", flush=True)


def draw(path: Path, days: dict[str, list[Measured]]) -> None:
    """Both days as curves of the tenths' medians."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
    for k, (axis, what) in enumerate(zip(axes, ("TTFT", "time per output token"), strict=True)):
        for name, turns in days.items():
            values = [medians(part)[k] for part in by_tenth(turns)]
            axis.plot(range(1, PARTS + 1), values, marker="o", label=name)
        axis.set_xlabel("tenth of the day")
        axis.set_ylabel("ms, median")
        axis.set_title(what)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"\nchart: {path}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="length of the day")
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--num-kv-blocks", type=int, default=256)
    parser.add_argument("--host-kv-bytes", default="128M")
    parser.add_argument("--disk-kv-bytes", default="4G")
    parser.add_argument("--days", choices=("both", "tiers", "neither"), default="both")
    parser.add_argument("--png", type=Path)
    parser.add_argument("--json", type=Path, help="write every turn's figures here")
    parser.add_argument("--serve", nargs="+", default=["octavo", "serve"], help="the server")
    args = parser.parse_args()
    few = ["--num-kv-blocks", str(args.num_kv_blocks), "--max-model-len", "2048"]
    days: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as disk:
        tiers = ["--host-kv-bytes", args.host_kv_bytes]
        tiers += ["--disk-kv-path", disk, "--disk-kv-bytes", args.disk_kv_bytes]
        for name, more in (
            ("tiers and prefix cache", tiers),
            ("neither", ["--no-enable-prefix-caching"]),
        ):
            if args.days not in ("both", name.split()[0]):
                continue
            with serving([*args.serve, *few, *more]) as base:
                turns = live_through(base, args.conversations, args.minutes * 60)
                days[name] = asyncio.run(turns)
            report(name, days[name])
    if args.png:
        draw(args.png, days)
    if args.json:
        rows = {name: [vars(m) for m in turns] for name, turns in days.items()}
        args.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

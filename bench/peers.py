"""Several servers, one workload, in turns: A B C A B C ..., and the ratio of the medians with its spread.

A peer is data: a name, a URL, and, if it is to be started here, its command line. Servers stay up during all rounds
and only one of them has work at a time. Every run has its own number, so that no prompt is found in a prefix cache.

    python bench/peers.py --test c16 --rounds 5 \\
        --peer 'octavo http://127.0.0.1:8000 octavo serve --port 8000' \\
        --peer 'other http://127.0.0.1:8102'
    python bench/peers.py --serve '--num-prompts 64 --max-concurrency 16 --random-output-len 64' ...
    python bench/peers.py --startup --peer 'octavo http://127.0.0.1:8000 octavo serve --port 8000' ...

--test runs the client of ../shared/bench, --serve runs `octavo bench serve` with these flags, --startup
starts each server afresh in every round and measures process start to /health 200.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from octavo.bench.server_process import ServerProcess
from octavo.bench.stats import ratio_of_medians
from octavo.errors import EngineError

CLIENT = Path(__file__).resolve().parents[2] / "shared" / "bench" / "client.py"


@dataclass(frozen=True)
class Figure:
    """What is compared: a field of the answer, in `unit`; whether more of it is better."""

    field: str
    unit: str
    more_is_better: bool


# First letter of the client's test -> figure.
TESTS = {
    "a": Figure("decode_tok_s", "tokens/s", True),
    "b": Figure("prefill_tok_s", "tokens/s", True),
    "c": Figure("out_tok_s", "tokens/s", True),
    "d": Figure("out_tok_s", "tokens/s", True),
    "e": Figure("ttft_turn6_ms", "ms", False),
}
SERVE = Figure("output_throughput", "tokens/s", True)
STARTUP = Figure("startup_s", "s", False)

Run = Callable[[ServerProcess, int], dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """One way to measure a server: `warm` before the rounds (nothing counts), `run` in each."""

    title: str
    figure: Figure
    warm: Run
    run: Run
    stays_up: bool = True


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", action="append", required=True, metavar="'NAME URL [COMMAND ...]'",
        help="a server; may be given more than once, the first is what the others are held against",
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--test", help="of the shared client: a, b, c16, c64, d16, d64, e8")
    what.add_argument("--serve", metavar="'FLAGS'", help="flags of octavo bench serve")
    what.add_argument("--startup", action="store_true", help="start to /health, in fresh processes")
    parser.add_argument("--client", type=Path, default=CLIENT, help="another client for --test")
    parser.add_argument("--model", help="name in the API (default: the first of /v1/models)")
    parser.add_argument("--figure", help="field of the answer to compare (default: by the test)")
    parser.add_argument("--less-is-better", action="store_true", help="of --figure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--first-run", type=int, help="number of the first run (default: by the clock)"
    )
    parser.add_argument("--out", type=Path, help="append every run as a line of JSON")
    parser.add_argument("--json", type=Path, help="write the summary as JSON")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds: expected at least 1, got {args.rounds}")
    if args.test and args.test[0] not in TESTS and not args.figure:
        parser.error(f"--test {args.test}: say which --figure to compare")
    if args.test and not args.client.is_file():
        parser.error(f"no client at {args.client}; give --client")
    try:
        args.peers = [peer(text) for text in args.peer]
    except ValueError as error:
        parser.error(f"--peer: {error}")
    names = [p.name for p in args.peers]
    if len(set(names)) < len(names):
        parser.error(f"--peer: expected names that differ, got {', '.join(names)}")
    if args.startup and not all(p.command for p in args.peers):
        parser.error("--startup: every peer needs a command")
    return args


def peer(text: str) -> ServerProcess:
    """'NAME URL COMMAND ...' -> a server. Raises ValueError."""
    words = shlex.split(text)
    if len(words) < 2 or not words[1].startswith(("http://", "https://")):
        raise ValueError(f"expected 'NAME http://HOST:PORT [COMMAND ...]', got {text!r}")
    return ServerProcess(words[0], words[1], words[2:] or None)


# -- ways to measure --------------------------------------------------------------------------------


def client_job(args: argparse.Namespace) -> Job:
    def run(server: ServerProcess, number: int, test: str) -> dict[str, Any]:
        argv = [sys.executable, str(args.client), "--base", server.url + "/v1"]
        argv += ["--model", args.model or first_model(server), "--test", test]
        argv += ["--run", str(number), "--label", server.name]
        if server.process:
            argv += ["--pid", str(server.process.pid)]
        answer = last_json(server, argv)
        if answer.get("errors"):
            raise EngineError(
                f"{server.name}: {answer['errors']} errors, the first: {answer['first_error']}"
            )
        return answer

    return Job(
        f"test {args.test}",
        TESTS.get(args.test[0], Figure("", "", True)),
        warm=lambda server, number: run(server, number, "warm"),
        run=lambda server, number: run(server, number, args.test),
    )


def serve_job(args: argparse.Namespace) -> Job:
    flags = shlex.split(args.serve)

    def run(server: ServerProcess, number: int) -> dict[str, Any]:
        argv = [sys.executable, "-m", "octavo", "bench", "serve", "--base-url", server.url, *flags]
        argv += ["--seed", str(number), "--salt", str(number), "--label", server.name]
        argv += ["--json", "-", "--disable-tqdm"]
        if args.model:
            argv += ["--model", args.model]
        answer = last_json(server, argv)
        if answer["failed"]:
            raise EngineError(f"{server.name}: {answer['failed']} requests failed")
        return answer

    # Each run warms up by itself.
    return Job(f"bench serve {args.serve}", SERVE, warm=lambda *_: {}, run=run)


def startup_job() -> Job:
    def run(server: ServerProcess, number: int) -> dict[str, Any]:
        try:
            return {"label": server.name, "run": number, "startup_s": server.start(poll=0.01)}
        finally:
            server.stop()

    # The first start also reads the files from disk.
    return Job("process start to /health 200", STARTUP, warm=run, run=run, stays_up=False)


def last_json(server: ServerProcess, argv: list[str]) -> dict[str, Any]:
    """Run a client; the object that it prints (a line, or all of its output)."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise EngineError(f"{server.name}: the client failed\n{done.stderr[-2000:]}")
    text = done.stdout.strip()
    answer: dict[str, Any] = json.loads(text if text.endswith("\n}") else text.splitlines()[-1])
    if done.stderr.strip():
        print(done.stderr.strip()[-500:], file=sys.stderr)
    return answer


def first_model(server: ServerProcess) -> str:
    with urllib.request.urlopen(server.url + "/v1/models", timeout=30) as answer:
        return str(json.load(answer)["data"][0]["id"])


# -- rounds -----------------------------------------------------------------------------------------


def measure(peers: Sequence[ServerProcess], job: Job, args: argparse.Namespace) -> dict[str, Any]:
    """All rounds, printed as they come; values by name."""
    number = args.first_run if args.first_run is not None else int(time.time()) % 100_000
    field = args.figure or job.figure.field
    width = max(len(p.name) for p in peers)
    print(f"{job.title}, {field} ({job.figure.unit if not args.figure else 'as it comes'})")
    for server in peers:
        job.warm(server, number)
    values: dict[str, list[float]] = {p.name: [] for p in peers}
    for k in range(args.rounds):
        for server in peers:
            number += 1
            answer = job.run(server, number)
            values[server.name].append(float(answer[field]))
            if args.out:
                with args.out.open("a") as f:
                    f.write(json.dumps(answer) + "\n")
            memory = f"  peak {answer['peak_rss_mb']} MB" if "peak_rss_mb" in answer else ""
            value = values[server.name][-1]
            print(f"round {k + 1}  {server.name:{width}s} {value:10.2f}{memory}", flush=True)
    return values


def summarise(values: dict[str, list[float]], more_is_better: bool) -> dict[str, Any]:
    """Medians, and how often better the first is than each other (above 1: better), with the spread."""
    first, *others = values
    found: dict[str, Any] = {"values": values, "medians": {n: median(v) for n, v in values.items()}}
    found["ratios"] = {}
    for other in others:
        a, b = values[first], values[other]
        ratio, low, high = ratio_of_medians(*((a, b) if more_is_better else (b, a)))
        found["ratios"][other] = {"ratio": ratio, "low": low, "high": high}
    return found


def show(found: dict[str, Any]) -> None:
    width = max(len(name) for name in found["medians"])
    first = next(iter(found["medians"]))
    for name, value in found["medians"].items():
        low, high = min(found["values"][name]), max(found["values"][name])
        print(f"median   {name:{width}s} {value:10.2f} ({low:.2f} to {high:.2f})")
    for other, r in found["ratios"].items():
        print(
            f"{first} / {other}: {r['ratio']:.2f} (above 1: {first} is better; "
            f"rounds {r['low']:.2f} to {r['high']:.2f})"
        )


def main() -> int:
    args = parse()
    job = startup_job() if args.startup else serve_job(args) if args.serve else client_job(args)
    try:
        if job.stays_up:
            for server in args.peers:
                server.start()
        values = measure(args.peers, job, args)
    except EngineError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    finally:
        for server in args.peers:
            server.stop()
    better = not args.less_is_better if args.figure else job.figure.more_is_better
    found = summarise(values, better)
    show(found)
    if args.json:
        args.json.write_text(json.dumps({"job": job.title, **found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

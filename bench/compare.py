"""Two servers, one client, alternating runs: A B A B ... and the ratio of the medians.

Both servers stay up during all rounds; only one of them has work at a time. Every run has its own number, so
that no prompt is ever found in a prefix cache.

    python bench/compare.py --test c16 --rounds 5 --a-url http://127.0.0.1:8000 --b-url http://127.0.0.1:8102
    python bench/compare.py --test a --a-cmd 'octavo serve --port 8000' --b-cmd '...' (with the same URLs)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from servers import Server, clean_url

CLIENT = Path(__file__).resolve().parents[2] / "shared" / "bench" / "client.py"

# first letter of the test -> figure to compare, unit, whether more is better
FIGURES = {
    "a": ("decode_tok_s", "tokens/s", True),
    "b": ("prefill_tok_s", "tokens/s", True),
    "c": ("out_tok_s", "tokens/s", True),
    "d": ("out_tok_s", "tokens/s", True),
    "e": ("ttft_turn6_ms", "ms", False),
}

MAX_FOREIGN_CPU_PCT = 5


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for side in "ab":
        parser.add_argument(f"--{side}-url", required=True, help="http://HOST:PORT")
        parser.add_argument(f"--{side}-cmd", help="start this; it must listen on the URL")
        parser.add_argument(f"--{side}-name", default=side.upper())
        parser.add_argument(f"--{side}-model", help="default: the first of /v1/models")
    parser.add_argument("--client", type=Path, default=CLIENT)
    parser.add_argument("--test", default="c16", help="a, b, c16, c64, d16, d64, e8")
    parser.add_argument("--figure", help="field of the client's answer to compare")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--first-run", type=int, help="number of the first run (default: by the clock)"
    )
    parser.add_argument("--out", type=Path, help="append every run as a line of JSON")
    args = parser.parse_args()
    if args.test[0] not in FIGURES and not args.figure:
        parser.error(f"--test {args.test}: say which --figure to compare")
    if not args.client.is_file():
        parser.error(f"no client at {args.client}; give --client")
    if args.rounds < 1:
        parser.error(f"--rounds: expected at least 1, got {args.rounds}")
    return args


def run_client(server: Server, model: str, args: argparse.Namespace, test: str, run: int) -> Any:
    """One run of the client; its answer as a dict. Ends the program if the client had errors."""
    argv = [sys.executable, str(args.client), "--base", server.url + "/v1", "--model", model]
    argv += ["--test", test, "--run", str(run), "--label", server.name]
    if server.process:
        argv += ["--pid", str(server.process.pid)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{server.name}: the client failed\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer.get("errors"):
        raise SystemExit(
            f"{server.name}: {answer['errors']} errors, the first: {answer['first_error']}"
        )
    if args.out:
        with args.out.open("a") as f:
            f.write(json.dumps(answer) + "\n")
    return answer


def summary(a: list[float], b: list[float], more_is_better: bool) -> dict[str, float]:
    """Medians, the ratio A/B of the medians (above 1: A is better), and the spread over the rounds."""
    ratios = [x / y if more_is_better else y / x for x, y in zip(a, b, strict=True)]
    ma, mb = statistics.median(a), statistics.median(b)
    return {
        "a": ma,
        "b": mb,
        "ratio": ma / mb if more_is_better else mb / ma,
        "low": min(ratios),
        "high": max(ratios),
    }


def compare(sides: list[Server], args: argparse.Namespace) -> None:
    figure, unit, more = FIGURES.get(args.test[0], ("", "", True))
    figure = args.figure or figure
    models = [args.a_model or sides[0].model(), args.b_model or sides[1].model()]
    run = args.first_run if args.first_run is not None else int(time.time()) % 100_000
    for side, model in zip(sides, models, strict=True):
        run_client(side, model, args, "warm", run)
    values: list[list[float]] = [[], []]
    busiest = 0.0
    print(f"test {args.test}, {figure} ({unit or 'as the client gives it'})")
    for k in range(args.rounds):
        for i, (side, model) in enumerate(zip(sides, models, strict=True)):
            run += 1
            answer = run_client(side, model, args, args.test, run)
            values[i].append(float(answer[figure]))
            print(
                f"round {k + 1}  {side.name:16s} {values[i][-1]:10.2f}{beside(answer)}", flush=True
            )
            busiest = max(busiest, answer.get("foreign_cpu_pct", 0.0))
    s = summary(values[0], values[1], more)
    print(
        f"median   {sides[0].name:16s} {s['a']:10.2f}\nmedian   {sides[1].name:16s} {s['b']:10.2f}"
    )
    print(
        f"{sides[0].name} / {sides[1].name}: {s['ratio']:.2f} (above 1: {sides[0].name} is better; "
        f"rounds {s['low']:.2f} to {s['high']:.2f})"
    )
    if busiest > MAX_FOREIGN_CPU_PCT:
        print(
            f"WARNING: other programs used up to {busiest:.0f} % of the CPUs: these figures mean nothing"
        )


def beside(answer: Any) -> str:
    """Peak memory of the server, and what other programs took meanwhile, if the client knows them."""
    if "peak_rss_mb" not in answer:
        return ""
    foreign = answer.get("foreign_cpu_pct", 0.0)
    return f"  peak {answer['peak_rss_mb']} MB, other programs {foreign:.0f} % CPU"


def main() -> None:
    args = parse()
    sides = [
        Server(args.a_name, clean_url(args.a_url), args.a_cmd),
        Server(args.b_name, clean_url(args.b_url), args.b_cmd),
    ]
    try:
        for side in sides:
            side.start()
        compare(sides, args)
    finally:
        for side in sides:
            side.stop()


if __name__ == "__main__":
    main()

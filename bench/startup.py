"""From process start to /health 200, several rounds, optionally beside a second server.

    python bench/startup.py --a-cmd 'octavo serve --port 8001' --a-url http://127.0.0.1:8001 --rounds 5

Each round starts a fresh process and stops it by its pid. The model must be in the cache already; the first
round, which also reads the file from disk, is shown but not counted.
"""

from __future__ import annotations

import argparse
import statistics

from servers import Server, clean_url


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--a-cmd", required=True, help="command line of the server")
    parser.add_argument("--a-url", required=True, help="where it answers: http://HOST:PORT")
    parser.add_argument("--a-name", default="A")
    parser.add_argument("--b-cmd", help="a second one, in turns with the first")
    parser.add_argument("--b-url")
    parser.add_argument("--b-name", default="B")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if bool(args.b_cmd) != bool(args.b_url):
        parser.error("--b-cmd and --b-url go together")
    if args.rounds < 1:
        parser.error(f"--rounds: expected at least 1, got {args.rounds}")
    return args


def main() -> None:
    args = parse()
    sides = [Server(args.a_name, clean_url(args.a_url), args.a_cmd)]
    if args.b_cmd:
        sides.append(Server(args.b_name, clean_url(args.b_url), args.b_cmd))
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for k in range(args.rounds + 1):
        for side in sides:
            try:
                took = side.start(poll=0.01)
            finally:
                side.stop()
            print(
                f"{'warm-up' if k == 0 else f'round {k}'}  {side.name:12s} {took:7.2f} s",
                flush=True,
            )
            if k:
                seconds[side.name].append(took)
    for name, taken in seconds.items():
        low, high = min(taken), max(taken)
        print(f"median  {name:12s} {statistics.median(taken):7.2f} s ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()

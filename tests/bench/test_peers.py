"""bench/peers.py, with stand-ins for the servers and for the client."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.repo.doc_session import free_port
from tests.server.conftest import Live
from tests.server.fake_engine import FakeEngine, Script

BENCH = Path(__file__).resolve().parents[2] / "bench"

SERVER = """
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "model-" + sys.argv[1]}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""

CLIENT = """
import argparse, json
p = argparse.ArgumentParser()
for name in ("--base", "--model", "--test", "--run", "--label", "--pid"): p.add_argument(name)
a = p.parse_args()
assert a.model.split("-")[1] in a.base and int(a.pid) > 0
speed = {"A": 30, "B": 10, "C": 20}[a.label] + int(a.run)
print(json.dumps({"run": int(a.run), "label": a.label, "test": a.test, "out_tok_s": speed, "ttft_turn6_ms": speed}))
"""


class StandIns:
    """Two or three servers that do nothing, and a client that reports made-up speeds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "server.py").write_text(SERVER)
        (folder / "client.py").write_text(CLIENT)
        self.ports = [free_port() for _ in range(3)]

    def peer(self, at: int) -> list[str]:
        port, script = self.ports[at], self.folder / "server.py"
        url = f"http://127.0.0.1:{port}/v1/"
        return ["--peer", f"{'ABC'[at]} {url} {sys.executable} {script} {port}"]

    def run(self, *options: str, peers: int = 2) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(BENCH / "peers.py"), "--client", str(self.folder / "client.py")]
        argv += ["--out", str(self.folder / "out"), *options]
        argv += [word for at in range(peers) for word in self.peer(at)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120)

    def are_gone(self) -> bool:
        for port in self.ports:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return False
        return True


@pytest.fixture
def stand_ins(tmp_path: Path) -> StandIns:
    return StandIns(tmp_path)


def test_runs_alternate_and_the_ratio_is_that_of_the_medians(stand_ins: StandIns) -> None:
    options = ("--test", "c16", "--rounds", "3", "--first-run", "0")
    run = stand_ins.run(*options, "--json", str(stand_ins.folder / "summary"))
    assert run.returncode == 0, run.stderr
    runs = [json.loads(line) for line in (stand_ins.folder / "out").read_text().splitlines()]
    assert [r["label"] for r in runs] == ["A", "B"] * 3
    assert [r["test"] for r in runs] == ["c16"] * 6
    assert [r["run"] for r in runs] == [1, 2, 3, 4, 5, 6]
    # A: 31 33 35, B: 12 14 16
    assert "A / B: 2.36 (above 1: A is better; rounds 2.19 to 2.58)" in run.stdout
    summary = json.loads((stand_ins.folder / "summary").read_text())
    assert summary["medians"] == {"A": 33.0, "B": 14.0}
    assert summary["ratios"]["B"]["ratio"] == pytest.approx(33 / 14)
    assert stand_ins.are_gone()


def test_the_first_is_held_against_each_other(stand_ins: StandIns) -> None:
    run = stand_ins.run("--test", "d16", "--rounds", "1", "--first-run", "0", peers=3)
    assert run.returncode == 0, run.stderr
    assert "A / B: 2.58" in run.stdout  # 31, 12
    assert "A / C: 1.35" in run.stdout  # 31, 23


def test_less_is_better_for_latencies(stand_ins: StandIns) -> None:
    run = stand_ins.run("--test", "e8", "--rounds", "1", "--first-run", "0")
    assert run.returncode == 0, run.stderr
    assert "A / B: 0.39" in run.stdout  # 12 ms against 31 ms
    figure = ("--figure", "out_tok_s", "--less-is-better")
    run = stand_ins.run("--test", "zz", *figure, "--rounds", "1", "--first-run", "0")
    assert "A / B: 0.39" in run.stdout


def test_errors_of_the_client_end_the_comparison(stand_ins: StandIns) -> None:
    client = stand_ins.folder / "client.py"
    client.write_text('print(\'{"errors": 2, "first_error": "400 no"}\')')
    run = stand_ins.run("--test", "c16")
    assert run.returncode == 1
    assert "2 errors, the first: 400 no" in run.stderr
    assert "Traceback" not in run.stderr
    assert stand_ins.are_gone()


def test_startup_counts_from_process_start_to_health(stand_ins: StandIns) -> None:
    run = stand_ins.run("--startup", "--rounds", "2", "--first-run", "0")
    assert run.returncode == 0, run.stderr
    lines = (stand_ins.folder / "out").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    assert [r["label"] for r in runs] == ["A", "B"] * 2
    assert all(r["startup_s"] > 0 for r in runs)
    assert stand_ins.are_gone()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--test", "zz"), "say which --figure"),
        (("--test", "c16", "--rounds", "0"), "expected at least 1, got 0"),
        (("--test", "c16", "--peer", "D 127.0.0.1:1"), "expected 'NAME http://HOST:PORT"),
        (("--test", "c16", "--peer", "A http://127.0.0.1:1"), "names that differ"),
        (("--startup", "--peer", "D http://127.0.0.1:1"), "every peer needs a command"),
        ((), "one of the arguments --test --serve --startup is required"),
    ],
)
def test_wrong_options(stand_ins: StandIns, options: tuple[str, ...], message: str) -> None:
    run = stand_ins.run(*options)
    assert (run.returncode, message in run.stderr) == (2, True), run.stderr


def test_a_command_that_ends_says_so(stand_ins: StandIns) -> None:
    (stand_ins.folder / "server.py").write_text("raise SystemExit('no such model')")
    run = stand_ins.run("--test", "c16")
    assert run.returncode == 1
    assert "A: the process ended with 1" in run.stderr
    assert "no such model" in run.stderr


def test_bench_serve_against_servers_that_run(launch: Callable[..., Live], tmp_path: Path) -> None:
    lives = [launch(), launch(FakeEngine(Script(delay=0.02)))]
    peers = [
        w for n, live in zip("AB", lives, strict=True) for w in ("--peer", f"{n} {live.url}/v1")
    ]
    flags = "--num-prompts 6 --random-input-len 20 --random-output-len 8 --vocab-size 257"
    argv = [sys.executable, str(BENCH / "peers.py"), *peers, "--serve", flags, "--rounds", "2"]
    argv += ["--first-run", "0", "--out", str(tmp_path / "out")]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    runs = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [r["label"] for r in runs] == ["A", "B", "A", "B"]
    assert all((r["completed"], r["total_output_tokens"]) == (6, 48) for r in runs)
    assert "output_throughput (tokens/s)" in run.stdout
    assert "A / B: " in run.stdout
    prompts = [tuple(prompt) for live in lives for prompt, _, _ in live.engine.requests]
    assert len(prompts) == len(set(prompts)) == 2 * 2 * 7  # no prompt twice, warm-ups included


def test_bench_serve_with_errors_ends(launch: Callable[..., Live]) -> None:
    live = launch(FakeEngine(max_model_len=64))
    argv = [sys.executable, str(BENCH / "peers.py"), "--peer", f"A {live.url}", "--serve"]
    argv += ["--num-prompts 2 --random-input-len 80 --vocab-size 257"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "A: the client failed" in run.stderr
    assert "HTTP 400" in run.stderr

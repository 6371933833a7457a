"""The comparison scripts, with a stand-in for the servers and for the client."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.doc_session import free_port

BENCH = Path(__file__).resolve().parents[2] / "bench"

SERVER = """
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "model-" + sys.argv[1]}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""

CLIENT = """
import argparse, json
p = argparse.ArgumentParser()
for name in ("--base", "--model", "--test", "--run", "--label", "--pid"): p.add_argument(name)
a = p.parse_args()
assert a.model.split("-")[1] in a.base and int(a.pid) > 0
speed = {"A": 30, "B": 10}[a.label] + int(a.run)
print(json.dumps({"run": int(a.run), "label": a.label, "test": a.test, "out_tok_s": speed, "ttft_turn6_ms": speed,
    "peak_rss_mb": 7, "foreign_cpu_pct": 40.0 if a.run == "4" else 1.0}))
"""


@pytest.fixture
def stand_ins(tmp_path: Path) -> tuple[list[str], list[int]]:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    ports = [free_port(), free_port()]
    options: list[str] = ["--client", str(tmp_path / "client.py"), "--out", str(tmp_path / "out")]
    for side, port in zip("ab", ports, strict=True):
        options += [f"--{side}-url", f"http://127.0.0.1:{port}/v1/"]
        options += [f"--{side}-cmd", f"{sys.executable} {tmp_path / 'server.py'} {port}"]
    return options, ports


def compare(*options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(BENCH / "compare.py"), *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_runs_alternate_and_the_ratio_is_that_of_the_medians(
    stand_ins: tuple[list[str], list[int]], tmp_path: Path
) -> None:
    options, ports = stand_ins
    run = compare(*options, "--test", "c16", "--rounds", "3", "--first-run", "0")
    assert run.returncode == 0, run.stderr
    runs = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [r["label"] for r in runs] == ["A", "B"] * 4
    assert [r["test"] for r in runs] == ["warm"] * 2 + ["c16"] * 6
    assert [r["run"] for r in runs[2:]] == [1, 2, 3, 4, 5, 6]
    # A: 31 33 35, B: 12 14 16
    assert "A / B: 2.36 (above 1: A is better; rounds 2.19 to 2.58)" in run.stdout
    assert "round 2  B                     14.00  peak 7 MB, other programs 40 % CPU" in run.stdout
    assert "WARNING: other programs used up to 40 % of the CPUs" in run.stdout
    for port in ports:  # both servers are gone
        with socket.socket() as s:
            assert s.connect_ex(("127.0.0.1", port)) != 0


def test_less_is_better_for_latencies(stand_ins: tuple[list[str], list[int]]) -> None:
    run = compare(*stand_ins[0], "--test", "e8", "--rounds", "1", "--first-run", "0")
    assert run.returncode == 0, run.stderr
    assert "A / B: 0.39" in run.stdout  # 12 ms against 31 ms
    assert "WARNING" not in run.stdout


def test_errors_of_the_client_end_the_comparison(
    stand_ins: tuple[list[str], list[int]], tmp_path: Path
) -> None:
    (tmp_path / "client.py").write_text('print(\'{"errors": 2, "first_error": "400 no"}\')')
    run = compare(*stand_ins[0], "--test", "c16")
    assert run.returncode != 0
    assert "2 errors, the first: 400 no" in run.stderr


def test_startup_counts_from_process_start_to_health(
    stand_ins: tuple[list[str], list[int]], tmp_path: Path
) -> None:
    port = stand_ins[1][0]
    argv = [sys.executable, str(BENCH / "startup.py"), "--rounds", "2"]
    argv += ["--a-url", f"http://127.0.0.1:{port}"]
    argv += ["--a-cmd", f"{sys.executable} {tmp_path / 'server.py'} {port}"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == [
        "warm-up",
        "round",
        "round",
        "median",
    ]

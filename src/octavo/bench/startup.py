"""`octavo bench startup`: from process start to /health 200."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from typing import Any

from octavo.bench import report
from octavo.bench.options import OutputOptions, StartupOptions
from octavo.bench.progress import Bar
from octavo.bench.server_process import ServerProcess
from octavo.bench.stats import summarise
from octavo.errors import ConfigError


def bench_startup(
    serve_args: Sequence[str], options: StartupOptions, output: OutputOptions
) -> dict[str, Any]:
    """Start `octavo serve` with these arguments again and again; print and give seconds of each
    start."""
    report.check_json(output.json)
    if any(arg.split("=")[0] == "--port" for arg in serve_args):
        raise ConfigError("--port: each start takes a free port; leave it out", "port")
    rounds = options.num_iters_warmup + options.num_iters
    taken = []
    with Bar("starts", rounds, not output.disable_tqdm) as bar:
        for _ in range(rounds):
            taken.append(_once(serve_args, options.timeout))
            bar.advance()
    counted = taken[options.num_iters_warmup :]
    summary = summarise(counted)
    result: dict[str, Any] = {
        "startup_times": counted,
        "warmup_times": taken[: options.num_iters_warmup],
        "avg_startup_time": summary.mean,
        "median_startup_time": summary.median,
        "serve_args": list(serve_args),
        "machine": report.machine(),
    }
    report.write_json(output.json, result)
    if output.json != "-":
        rows = [["warm-up", f"{t:.2f}"] for t in result["warmup_times"]]
        rows += [[f"start {i + 1}", f"{t:.2f}"] for i, t in enumerate(counted)]
        rows.append(["median", f"{summary.median:.2f}"])
        report.table("Process start to /health 200", ("start", "seconds"), rows)
    return result


def _once(serve_args: Sequence[str], timeout: float) -> float:
    port = _free_port()
    command = [sys.executable, "-m", "octavo", "serve", *serve_args, "--port", str(port)]
    server = ServerProcess("octavo serve", f"http://127.0.0.1:{port}", command, timeout)
    try:
        return server.start(poll=0.01)
    finally:
        server.stop()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port

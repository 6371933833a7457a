"""Servers to measure: given by URL, or by a command line that is started here and stopped by its pid."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO


@dataclass
class Server:
    """One side of a comparison. `url` without /v1. With `command`, `start()` runs it."""

    name: str
    url: str
    command: str | None = None
    timeout: float = 600.0
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] = field(default_factory=lambda: tempfile.NamedTemporaryFile(suffix=".log"))  # noqa: SIM115

    def start(self, poll: float = 0.05) -> float:
        """Start (if there is a command) and wait for /health 200; seconds from process start to that."""
        if self.command and self.healthy():
            sys.exit(f"{self.name}: something answers on {self.url} already")
        begin = time.perf_counter()
        if self.command:
            self.process = subprocess.Popen(
                shlex.split(self.command), stdout=self.log, stderr=subprocess.STDOUT
            )
        while not self.healthy():
            if self.process and self.process.poll() is not None:
                sys.exit(f"{self.name}: ended with {self.process.returncode}\n{self.tail()}")
            if time.perf_counter() - begin > self.timeout:
                self.stop()
                sys.exit(
                    f"{self.name}: no /health at {self.url} in {self.timeout:g} s\n{self.tail()}"
                )
            time.sleep(poll)
        return time.perf_counter() - begin

    def stop(self) -> None:
        """End the process that `start` made, and only that."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def model(self) -> str:
        """The first name that /v1/models gives."""
        with urllib.request.urlopen(self.url + "/v1/models", timeout=30) as answer:
            return str(json.load(answer)["data"][0]["id"])

    def tail(self) -> str:
        """The end of what the started process printed."""
        text = Path(self.log.name).read_text(errors="replace")
        return text[-2000:]


def clean_url(url: str) -> str:
    """'http://host:port/v1/' -> 'http://host:port'."""
    return url.rstrip("/").removesuffix("/v1")

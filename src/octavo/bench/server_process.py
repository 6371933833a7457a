"""Servers to measure: given by URL, or by a command line that is started here and stopped by its
own pid."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from octavo.errors import EngineError


class ServerProcess:
    """One server at `url` (without /v1). With a `command`, `start` runs it; without, it must be
    there."""

    def __init__(
        self,
        name: str,
        url: str,
        command: str | Sequence[str] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.name = name
        self.url = url.rstrip("/").removesuffix("/v1")
        self.command = shlex.split(command) if isinstance(command, str) else command
        self.timeout = timeout
        self.process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None

    def start(self, poll: float = 0.05) -> float:
        """Start (if there is a command) and wait for /health 200; seconds from process start to
        that.

        Raises EngineError if the process ends or the time is over; its last lines are in the
        message.
        """
        if self.command and self.is_healthy():
            raise EngineError(f"{self.name}: something answers at {self.url} already")
        begin = time.perf_counter()
        if self.command:
            with tempfile.NamedTemporaryFile(suffix=".log", delete=False) as log:
                self._log = Path(log.name)
                try:
                    self.process = subprocess.Popen(
                        self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                except OSError as error:
                    raise EngineError(
                        f"{self.name}: cannot start {self.command[0]}: {error}"
                    ) from None
        while not self.is_healthy():
            ended = self.process.poll() if self.process else None
            if ended is not None or time.perf_counter() - begin > self.timeout:
                why = f"no /health at {self.url} in {self.timeout:g} s"
                if ended is not None:
                    why = f"the process ended with {ended}"
                text = self._tail()
                self.stop()
                raise EngineError(f"{self.name}: {why}\n{text}".rstrip())
            time.sleep(poll)
        return time.perf_counter() - begin

    def stop(self) -> None:
        """End the process that `start` made, and only that."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.unlink(missing_ok=True)
            self._log = None

    def is_healthy(self) -> bool:
        """True if /health answers 200 now."""
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _tail(self) -> str:
        """The end of what the started process printed."""
        return self._log.read_text(errors="replace")[-2000:] if self._log else ""

"""Runs the blocks of one document, with one server for those that need it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.repo.doc_blocks import ADDRESS, ROOT, Block, commands, kind

LIMIT = 300  # seconds for one command or for a server to come up


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Session:
    """A reader who follows one document from top to bottom."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.server: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.printed = ""  # by the commands so far; the server's log comes on top
        bin_dir = Path(sys.executable).parent
        if not (bin_dir / "octavo").exists():  # run from the sources, nothing installed
            bin_dir = scratch / "bin"
            bin_dir.mkdir()
            shim = bin_dir / "octavo"
            code = "from octavo.cli import main; main()"
            shim.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
            shim.chmod(0o755)
        path = os.pathsep.join([str(bin_dir), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.env = {**os.environ, "PATH": path, "PYTHONWARNINGS": "default"}

    def run_block(self, block: Block) -> None:
        if block.mark == "output":
            self.check_output(block)
            return
        if block.lang == "python":
            self.run_python(block)
            return
        for command in commands(block.text):
            what = kind(command)
            if block.mark == "help":
                self.check_options(block, command)
            elif what == "serve":
                self.start(command)
            elif what == "ci":
                self.check_known(block, command)
            elif what == "run":
                self.ensure_server(command)
                self.run(block, ["bash", "-euo", "pipefail", "-c", self.local(command)])

    def run_python(self, block: Block) -> None:
        self.ensure_server(block.text)
        script = self.scratch / "block.py"
        script.write_text(self.local(block.text), encoding="utf-8")
        self.run(block, [sys.executable, "-W", "error::DeprecationWarning:__main__", str(script)])

    def local(self, text: str) -> str:
        return ADDRESS.sub(f"127.0.0.1:{self.port}", text)

    def run(self, block: Block, argv: list[str]) -> str:
        run = subprocess.run(
            argv,
            cwd=ROOT,
            env=self.env,
            input="Name one colour.\n",  # what `octavo chat` reads; then the end of input
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        said = f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
        assert run.returncode == 0, f"{block.where}: {argv[-1]}\nexit {run.returncode}\n{said}"
        assert '"error"' not in run.stdout, f"{block.where}: {argv[-1]}\n{said}"
        self.printed += run.stdout + run.stderr
        return run.stdout

    def check_output(self, block: Block) -> None:
        """Numbers (and the instruction set's name) may differ, words may not."""
        printed = self.printed
        if self.server is not None:
            printed += (self.scratch / "server.log").read_text()
        for line in block.text.splitlines():
            pattern = re.escape(line).replace(r"\.", ".")
            pattern = re.sub(r"cpu\\-\w+", r"[\\w-]+", pattern)  # the op set of this machine
            pattern = re.sub(r"[\d.,]*\d", lambda _: r"[\d.,]*\d", pattern)
            shown = f"{block.where}: {line}\nwas not printed; this was:\n{printed[-3000:]}"
            assert re.search(pattern, printed), shown

    def check_known(self, block: Block, command: str) -> None:
        """.ci/run runs these; here: the same words stand there, or the target or folder exists."""
        ci = (ROOT / ".ci" / "run").read_text()
        words = shlex.split(command)
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        elif words[0] == "pytest":
            assert re.search(r"^pytest\b", ci, re.MULTILINE), block.where
            for word in words[1:]:
                assert word.startswith("-") or (ROOT / word).exists() or words[-2] == "-m", word
        elif words[0] == "pip":
            assert words[-1] in (".", ".[test]"), f"{block.where}: not what .ci/run installs"
            assert "pip install --quiet '.[test]'" in ci

    def check_options(self, block: Block, command: str) -> None:
        """The program knows every long option that the document shows."""
        words = shlex.split(command)
        end = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
        assert words[0] == "octavo" or (ROOT / words[1]).is_file(), block.where
        text = self.run(block, [*self.program(words[:end]), "--help"])
        for word in words[end:]:
            option = word.split("=")[0]
            known = not option.startswith("--") or re.search(rf"{option}\b", text)
            assert known, f"{block.where}: {' '.join(words[:end])} knows no {option}"

    def program(self, words: list[str]) -> list[str]:
        if words[0].startswith("python"):
            return [sys.executable, *words[1:]]
        return [shutil.which(words[0], path=self.env["PATH"]) or words[0], *words[1:]]

    def ensure_server(self, text: str) -> None:
        if self.server is None and ADDRESS.search(text):
            self.start("octavo serve")

    def start(self, command: str) -> None:
        self.stop()
        self.port = free_port()
        words = shlex.split(re.sub(r"--port[ =]\d+", "", command.rstrip("& ")))
        log = self.scratch / "server.log"
        with log.open("wb") as out:
            self.server = subprocess.Popen(
                [*self.program(words[:1]), *words[1:], "--port", str(self.port)],
                cwd=ROOT,
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        end = time.monotonic() + LIMIT
        while not self.healthy():
            assert self.server.poll() is None, f"{command} ended:\n{log.read_text()[-3000:]}"
            assert time.monotonic() < end, f"{command}: no /health\n{log.read_text()[-3000:]}"
            time.sleep(0.1)

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as r:
                return bool(r.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """SIGTERM must end the server cleanly."""
        if self.server is None:
            return
        server, self.server = self.server, None
        server.send_signal(signal.SIGTERM)
        try:
            code = server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise
        log = (self.scratch / "server.log").read_text()
        assert code in (0, -signal.SIGTERM), f"the server ended with {code}:\n{log[-3000:]}"
        assert "Traceback" not in log, log[-3000:]

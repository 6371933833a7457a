from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.cli.app import app
from octavo.errors import StoreError
from tests.conftest import ROOT
from tests.runner.stores import block, key, open_store

runner = CliRunner()
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def octavo(*args: object, **kwargs: object) -> tuple[int, str]:
    """In a process of its own: it must not see this one's open files."""
    command = [sys.executable, "-m", "octavo", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, **kwargs)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """Two models' blocks, one of them not full."""
    for model, names in (("first", range(30)), ("second", range(30, 35))):
        store = open_store(tmp_path, model)
        store.write([(n, key(n), block(n)) for n in names])
        if model == "second":
            store.write([(99, key(99, 5), block(99))])
        store.close()
    return tmp_path


def flip(path: Path, data: bytes) -> None:
    """Change the byte after `data` wherever that lies in a file of blocks; pages have old copies."""
    found = False
    for file in path.glob("*/data.mdb"):
        content = bytearray(file.read_bytes())
        for match in re.finditer(re.escape(data), bytes(content)):
            content[match.end()] ^= 1
            found = True
        file.write_bytes(content)
    assert found


def test_info_lists_models(stores):
    code, out = octavo("cache", "info", stores)
    rows = {line.split()[1]: line.split() for line in out.splitlines() if " float16 " in line}
    assert code == 0
    assert rows["first"][2:6] == ["float16", "16", "30", "480"]
    assert rows["second"][2:6] == ["float16", "16", "6", "85"]
    assert all(row[-1] == "free" for row in rows.values())
    assert float(rows["first"][6]) > 30 * 9000 / 1e6


def test_info_beside_a_server(stores):
    store = open_store(stores, "first")
    code, out = octavo("cache", "info", stores)
    line = next(line for line in out.splitlines() if "first" in line)
    assert line.rstrip().endswith(f"in use by process {os.getpid()}")
    assert line.split()[4:6] == ["30", "480"]
    store.write([(50, key(50), block(50))])
    assert " 31 " in octavo("cache", "info", stores)[1]
    assert code == 0
    store.close()


def test_verify(stores):
    code, out = octavo("cache", "verify", stores)
    assert code == 0
    assert sorted(line.split(": ")[1] for line in out.splitlines()) == [
        "30 blocks, 0 damaged",
        "6 blocks, 0 damaged",
    ]
    flip(stores, block(3).tobytes()[:100])
    flip(stores, key(7).hash)
    code, out = octavo("cache", "verify", stores)
    assert code == 1
    assert "30 blocks, 2 damaged\n  slot 3: its bytes\n  slot 7: its label\n" in out
    # Reading changed nothing; the server that comes next drops the label, and then the block.
    store = open_store(stores, "first")
    assert len(store.entries()) == 29
    store.close()
    assert "29 blocks, 1 damaged\n  slot 3: its bytes\n" in octavo("cache", "verify", stores)[1]


def test_verify_of_a_broken_file(stores):
    for file in stores.glob("*/data.mdb"):
        os.truncate(file, 20_000)
    code, out = octavo("cache", "verify", stores)
    assert code == 1
    assert out.count("structure: ") == 2
    code, out = octavo("cache", "info", stores)
    assert code == 0
    assert not any(line.rstrip().endswith("free") for line in out.splitlines())


def test_clear(stores):
    (stores / "note.txt").write_text("mine")
    (stores / "0123456789abcdef").mkdir()
    code, out = octavo("cache", "clear", stores, input="n\n")
    assert (code, "first" in out) == (1, True)
    assert len(list(stores.glob("*/data.mdb"))) == 2
    code, out = octavo("cache", "clear", stores, input="y\n")
    assert (code, "deleted the KV blocks of 2 models" in out) == (0, True)
    assert sorted(p.name for p in stores.iterdir()) == ["0123456789abcdef", "note.txt"]
    assert octavo("cache", "info", stores) == (0, f"no KV blocks in {stores}\n")
    assert octavo("cache", "clear", stores) == (0, f"no KV blocks in {stores}\n")
    assert octavo("cache", "clear", "--yes", stores)[0] == 0


def test_nothing_is_cleared_or_verified_while_a_server_runs(stores):
    store = open_store(stores, "second")
    for command in (["clear", "--yes"], ["verify"]):
        code, out = octavo("cache", *command, stores)
        assert (code, f"in use by process {os.getpid()}" in out) == (1, True)
    assert len(list(stores.glob("*/data.mdb"))) == 2
    store.close()
    assert octavo("cache", "clear", "--yes", stores)[0] == 0
    assert not list(stores.iterdir())


@pytest.mark.parametrize("command", ["info", "verify", "clear"])
def test_a_directory_that_is_not_there(tmp_path, command):
    result = runner.invoke(app, ["cache", command, str(tmp_path / "none")])
    assert isinstance(result.exception, StoreError)
    assert "none: expected the directory of --disk-kv-path, got: No such file" in str(
        result.exception
    )


@pytest.mark.parametrize("command", ["info", "verify", "clear"])
def test_help(command):
    text = runner.invoke(app, ["cache", command, "--help"]).output
    assert "DIR" in text
    assert "--disk-kv-path" in text

"""The folder of packed weights: full disks, two writers, bounded size."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from octavo.models import packed_folder
from octavo.models.packed_file import PackedFile, PackedPart, write_packed
from octavo.models.packed_folder import PackedName, save

NAME = PackedName("/models/some model.gguf", "q4")
RUNNING = threading.Event()


def part(name: str = "w", num_bytes: int = 70_000, seed: int = 0) -> PackedPart:
    data = np.random.default_rng(seed).integers(0, 256, num_bytes, np.uint8)
    return PackedPart(name, (("Q8_0", 16), ("Q4_1", 48)), 128, data)


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def warned(caplog: pytest.LogCaptureFixture) -> str:
    (message,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    return message


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    parts = [part("a", 1), part("b", 4096, seed=1), part("c", 70_001, seed=2), part("d", 0)]
    assert save(tmp_path / "new" / "folder", NAME, "key", parts, RUNNING)
    (name,) = files(tmp_path / "new" / "folder")
    assert name.startswith("some_model.gguf-")
    file = PackedFile(tmp_path / "new" / "folder" / name, "key", 2)
    for p in reversed(parts):
        data = file.take(p.name, p.matrices, p.width)
        assert data is not None
        np.testing.assert_array_equal(data, p.data)
        assert not data.flags.writeable
        assert data.ctypes.data % 4096 == 0 or data.size == 0
    assert file.take("e", (), 128) is None
    assert file.take("a", parts[0].matrices, 64) is None
    assert file.take("a", (("Q8_0", 64),), 128) is None
    file.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def write(file: Any, key: str, parts: Any) -> Iterator[None]:
        steps = write_packed(file, key, parts)
        for _ in range(3):
            yield next(steps)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(packed_folder, "write_packed", write)
    assert not save(tmp_path, NAME, "key", [part("a"), part("b")], RUNNING)
    assert files(tmp_path) == []
    assert os.strerror(code) in warned(caplog)


def test_a_folder_that_cannot_be_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert not save(tmp_path / "file" / "packed", NAME, "key", [part()], RUNNING)
    assert "Not a directory" in warned(caplog)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o555)
    assert not save(tmp_path, NAME, "key", [part()], RUNNING)
    tmp_path.chmod(0o755)
    assert "Permission denied" in warned(caplog)


def test_the_disk_is_not_filled_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        packed_folder.shutil, "disk_usage", lambda path: SimpleNamespace(free=(1 << 30) + 69_999)
    )
    assert not save(tmp_path, NAME, "key", [part()], RUNNING)
    assert files(tmp_path) == []
    assert "not kept" in warned(caplog)


def test_the_oldest_make_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_folder, "MAX_FOLDER_BYTES", 250_000)
    names = [PackedName(f"model-{i}", "auto") for i in range(5)]
    for i, name in enumerate(names[:4]):
        assert save(tmp_path, name, "key", [part()], RUNNING)
        os.utime(tmp_path / name.file("key"), (i, 100 - i))  # used in the opposite order
    kept = [names[0].file("key"), names[1].file("key"), names[3].file("key")]
    assert files(tmp_path) == sorted(kept)
    assert not save(tmp_path, names[4], "key", [part(num_bytes=260_000)], RUNNING)
    assert "not kept" in warned(caplog)
    assert files(tmp_path) == sorted(kept)


def test_old_states_of_the_model_go(tmp_path: Path) -> None:
    others = [PackedName(NAME.model, "q8"), PackedName("/other/some model.gguf", "q4")]
    for name, key in [(NAME, "1"), *((n, "1") for n in others), (NAME, "2")]:
        assert save(tmp_path, name, key, [part()], RUNNING)
    assert files(tmp_path) == sorted([NAME.file("2"), *(n.file("1") for n in others)])


def test_abandoned_files_go(tmp_path: Path) -> None:
    for name in ("old.tmp", "new.tmp", "other.txt"):
        (tmp_path / name).write_text("")
    os.utime(tmp_path / "old.tmp", (0, 0))
    os.utime(tmp_path / "other.txt", (0, 0))
    assert save(tmp_path, NAME, "key", [part()], RUNNING)
    assert files(tmp_path) == sorted(["new.tmp", "other.txt", NAME.file("key")])


def test_an_exit_leaves_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert not save(tmp_path, NAME, "key", [part()], stop)
    assert files(tmp_path) == []


SCRIPT = """
import sys, threading, numpy as np
from pathlib import Path
from tests.models.test_packed_folder import NAME, part
from octavo.models.packed_file import PackedFile
from octavo.models.packed_folder import save
folder = Path(sys.argv[1])
parts = [part("a", 3_000_000), part("b", 70_000, seed=1)]
for _ in range(20):
    assert save(folder, NAME, "key", parts, threading.Event())
    file = PackedFile(folder / NAME.file("key"), "key", 1)
    for p in parts:
        assert (file.take(p.name, p.matrices, p.width) == p.data).all()
    file.close()
"""


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    writers = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    assert files(tmp_path) == [NAME.file("key")]

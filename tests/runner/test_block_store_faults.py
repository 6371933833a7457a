"""What may happen to a disk: never a wrong block, never the end of the process."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from octavo.errors import StoreError
from octavo.runner import block_store
from octavo.runner.block_file import slot_key
from octavo.runner.block_records import Label
from tests.conftest import ROOT
from tests.runner.stores import block, key, open_store, read

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

WRITER = """
import random, sys
from pathlib import Path
from tests.runner.stores import open_store, key, block
store = open_store(Path(sys.argv[1]), num_bytes=64 * 13000)
rng = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    names = [rng.randrange(1000) for _ in range(rng.randrange(1, 12))]
    store.write([(rng.randrange(store.num_slots), key(n), block(n)) for n in names])
"""


def start(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV, cwd=ROOT
    )


def check_all(store) -> int:
    """Every entry can be read and is right; the number of them."""
    name_of = {key(n): n for n in range(1000)}
    entries = store.entries()
    for slot, held in entries:
        assert (read(store, slot, held) == block(name_of[held])).all()
    return len(entries)


@pytest.mark.parametrize(
    "rounds", [pytest.param(8, id="8"), pytest.param(50, id="50", marks=pytest.mark.slow)]
)
def test_killed_while_writing(tmp_path, rounds, caplog):
    rng = random.Random(rounds)
    most = 0
    for round in range(rounds):
        writer = start(WRITER, tmp_path, round)
        assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        time.sleep(rng.uniform(0, 0.15))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        store = open_store(tmp_path, num_bytes=64 * 13000)
        found = check_all(store)
        assert found >= most - 1  # nothing that was there is lost, at most one more slot is empty
        most = max(most, found)
        store.close()
    assert most > 40
    assert not caplog.records


def write_all(store, names) -> None:
    for n in names:
        store.write([(n, key(n), block(n))])


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A store of 100 blocks, most of them written twice, that was not closed."""
    path = tmp_path_factory.mktemp("filled")
    store = open_store(path)
    for n in range(0, 160, 4):
        store.write([(i % 100, key(i), block(i)) for i in range(n, n + 4)])
    store.close()
    (store.folder.path / "closed").unlink()
    return path


def survives(path) -> int:
    """Open it, read all, write all again; blocks that were right. Ends the process if lmdb does."""
    name_of = {key(n): n for n in range(200)}
    store = open_store(path)
    right = 0
    for slot, held in store.entries():
        got = read(store, slot, held)
        assert got is None or (got == block(name_of[held])).all()
        right += got is not None
    for n in range(100, 200, 10):
        store.write([(i % 100, key(i), block(i)) for i in range(n, n + 10)])
    assert check_all(store) == 100
    store.close()
    return right


def in_child(path) -> int:
    """`survives` in a child process, in case that it does not."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            code = survives(path)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status), f"ended by signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) <= 100
    return os.WEXITSTATUS(status)


@pytest.mark.parametrize("flips", [1, 5])
def test_flipped_bits(tmp_path, filled, flips):
    rng = random.Random(flips)
    lost = 0
    for round in range(100 // flips):
        copy = tmp_path / str(round)
        shutil.copytree(filled, copy)
        files = [p for p in copy.rglob("*") if p.is_file() and p.stat().st_size]
        for _ in range(flips):
            # Mostly the blocks, but each file has its turn, and so have lmdb's own pages.
            path = rng.choice(files) if rng.random() < 0.3 else next(copy.glob("*/data.mdb"))
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data))
            if rng.random() < 0.5:
                at = at // 4096 * 4096 + rng.randrange(64)
            at = min(at, len(data) - 1)
            data[at] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        lost += 100 - in_child(copy)
        shutil.rmtree(copy)
    assert lost > 10


@pytest.mark.parametrize("size", [0, 1, 4096, 8192, 100_000, 0.5, 0.99])
def test_a_file_that_was_cut_off(tmp_path, filled, size):
    copy = tmp_path / "copy"
    shutil.copytree(filled, copy)
    data = next(copy.glob("*/data.mdb"))
    os.truncate(data, size if isinstance(size, int) else int(data.stat().st_size * size))
    in_child(copy)


@pytest.mark.parametrize("name", ["data.mdb", "about.json", "lock.mdb", "lock"])
@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, None])
def test_a_file_of_nonsense_or_none(tmp_path, filled, name, content):
    copy = tmp_path / "copy"
    shutil.copytree(filled, copy)
    path = next(copy.glob(f"*/{name}"))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert in_child(copy) == (100 if "lock" in name else 0)


def test_a_damaged_store_is_emptied_and_that_is_said(tmp_path, filled, caplog):
    copy = tmp_path / "copy"
    shutil.copytree(filled, copy)
    with next(copy.glob("*/data.mdb")).open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xff" * 4096 * 40)
    store = open_store(copy)
    assert store.entries() == []
    assert "damaged: " in caplog.text
    store.close()


def test_a_changed_letter_in_about_json_is_damage_and_not_another_model(tmp_path, caplog):
    about = open_and_close(tmp_path) / "about.json"
    about.write_text(about.read_text().replace("weights of tiny", "weights of tinz"))
    open_and_close(tmp_path)
    assert "about.json is missing or damaged" in caplog.text


def open_and_close(path):
    store = open_store(path)
    store.close()
    return store.folder.path


def test_a_label_as_long_as_it_does_not_say(tmp_path, caplog):
    """Its length is lmdb's own: to delete or replace it would spoil the page it lies in."""
    store = open_store(tmp_path)
    store.write([(slot, key(slot), block(slot)) for slot in range(3)])
    file = store._file
    with file.env.begin(write=True) as txn:
        label = txn.get(slot_key(1), db=file.labels)
        txn.put(slot_key(1), label[:-4], db=file.labels)
    assert store.entries() == []
    assert "label of slot 1: wrong length" in caplog.text
    store.write([(0, key(5), block(5))])
    assert check_all(store) == 1
    store.close()


def test_a_label_that_names_other_tokens_than_its_bytes(tmp_path):
    store = open_store(tmp_path)
    store.write([(1, key(1), block(1))])
    file = store._file
    with file.env.begin(write=True) as txn:
        label = Label.unpack(txn.get(slot_key(1), db=file.labels), 16)
        forged = Label(label.sequence, label.checksum, key(2)).pack()
        txn.put(slot_key(1), forged, db=file.labels)
    assert store.entries() == [(1, key(2))]
    assert read(store, 1, key(2)) is None
    store.close()


def test_a_store_closed_in_good_order_is_not_checked_unless_touched(tmp_path, monkeypatch):
    checks = []
    monkeypatch.setattr(block_store, "find_damage", lambda path: checks.append(path))
    for touch in (False, False, True, False):
        store = open_store(tmp_path)
        store.write([(0, key(1), block(1))])
        store.close()
        if touch:
            os.utime(store.folder.data)
    assert len(checks) == 1


def test_two_processes(tmp_path):
    store = open_store(tmp_path)
    code = "import sys; from pathlib import Path; from tests.runner.stores import open_store; open_store(Path(sys.argv[1]))"
    other = start(code, tmp_path)
    _, error = other.communicate()
    assert f"StoreError: {store.folder.path}: in use by process {os.getpid()};" in error
    store.write([(0, key(1), block(1))])
    store.close()
    other = start(code, tmp_path)
    other.communicate()
    assert other.returncode == 0


def test_a_directory_that_may_not_be_written_to(tmp_path):
    open_store(tmp_path / "made").close()
    for path in (tmp_path / "made", *(tmp_path / "made").iterdir(), tmp_path):
        path.chmod(0o555)
    code = """
import os, sys
from pathlib import Path
from tests.runner.stores import open_store
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
for path in sys.argv[1:]:
    try:
        open_store(Path(path))
    except Exception as error:
        print(type(error).__name__, error)
"""
    out, error = start(code, tmp_path / "made", tmp_path / "new").communicate()
    tmp_path.chmod(0o755)
    lines = out.splitlines()
    assert len(lines) == 2, error
    for line in lines:
        assert line.startswith("StoreError ")
        assert "Permission denied; --disk-kv-path needs a directory" in line


def test_a_path_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file: (File exists|Not a directory); --disk-kv-path"):
        open_store(tmp_path / "file")


def test_a_full_disk(tmp_path):
    """A file size limit stands for it: lmdb sees an error where the file would grow."""
    store = open_store(tmp_path, num_bytes=200 * 13000)
    store.write([(n, key(n), block(n)) for n in range(20)])
    size = store.folder.data.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"File too large|Input/output error"):
            write_all(store, range(20, 100))
        assert not store.is_damaged
        held = check_all(store)
        assert 20 <= held < 25
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    store.write([(n, key(n), block(n)) for n in range(100)])
    assert check_all(store) == 100
    store.close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system needs the right to mount one")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_really_full_disk(small_disk):
    store = open_store(small_disk, num_bytes=8 << 20)
    with pytest.raises(StoreError, match=r"the disk is full: [0-9,]+ bytes free"):
        write_all(store, range(400))
    held = check_all(store)
    assert held > 50
    store.close()
    store = open_store(small_disk, num_bytes=8 << 20)
    assert check_all(store) == held
    store.close()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "more").write_bytes(b"x" * (2 << 20))
    with pytest.raises(StoreError, match=r"No space left on device|the disk is full"):
        open_store(small_disk, "other")


def test_a_full_map(tmp_path, monkeypatch):
    """More than lmdb's headroom: an error, and the store is as it was."""
    from octavo.runner import block_file

    monkeypatch.setattr(block_file, "_HEADROOM", 0)
    store = open_store(tmp_path, num_bytes=30 * 13000)
    with pytest.raises(StoreError, match="MAP_FULL"):
        store.write([(n, key(n), block(n)) for n in range(60)])
    store.write([(n, key(n), block(n)) for n in range(10)])
    assert check_all(store) == 10
    store.close()

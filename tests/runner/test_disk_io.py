from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

import lmdb
import numpy as np
import pytest

from octavo.errors import StoreError
from octavo.kv.moves import Demote, Place, Promote, Tier
from octavo.kv.prefix import Key
from octavo.runner import disk_io
from octavo.runner.disk_io import GAP, PAUSE, DiskIO
from tests.runner.stores import BLOCK_BYTES, block, key, open_store, read


def demote(slot: int, n: int) -> Demote:
    return Demote(Place(Tier.DEVICE, 0), Place(Tier.DISK, slot), key(n))


def promote(slot: int, n: int) -> Promote:
    return Promote(Place(Tier.DISK, slot), 0, key(n))


class Gate:
    """A store whose reads and writes wait until the gate is open, and may be told to fail."""

    def __init__(self, store) -> None:
        self._store = store
        self.open = threading.Event()
        self.open.set()
        self.writes_may_end = threading.Event()
        self.writes_may_end.set()
        self.is_writing = threading.Event()
        self.error: Exception | None = None
        self.num_writes = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def write(self, records):
        self.open.wait()
        self.num_writes += 1
        if self.error:
            raise self.error
        # In the middle of the store's own write: it asks for one record after the other.
        self._store.write(self._slowly(records))

    def _slowly(self, records):
        for record in records:
            self.is_writing.set()
            self.writes_may_end.wait()
            yield record

    def read(self, *args):
        self.open.wait()
        return self._store.read(*args)


@pytest.fixture
def gate(tmp_path):
    return Gate(open_store(tmp_path))


@pytest.fixture
def make(gate):
    made = []

    def make(**kwargs) -> DiskIO:
        made.append(DiskIO(gate, **kwargs))
        return made[-1]

    yield make
    gate.open.set()
    gate.writes_may_end.set()
    for io in made:
        io.close()


def damage(gate: Gate) -> None:
    """Overwrite all of the file but lmdb's two first pages."""
    with gate.folder.data.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xff" * (gate.folder.data.stat().st_size - 2 * 4096))


def wait_until(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.001)
    return is_true()


def collect_all(io: DiskIO) -> tuple[dict[Promote, np.ndarray | None], list[Demote]]:
    """All that is on its way; copies, since the arrays do not last."""
    found, lost = {}, []
    while io.num_pending:
        arrived, gone = io.collect(10.0)
        found.update({move: None if data is None else data.copy() for move, data in arrived})
        lost += gone
    return found, lost


def test_writes_are_read_again(make):
    io = make()
    for n in range(20):
        io.write(demote(n, n), block(n))
    assert io.flush(10)
    assert io.num_queued == 0
    moves = [promote(n, n) for n in range(20)] + [promote(3, 4), promote(30, 30)]
    for move in moves:
        io.read(move)
    assert io.num_pending == 22
    found, lost = collect_all(io)
    assert (set(found), lost) == (set(moves), [])
    assert [m for m, data in found.items() if data is None] == moves[20:]
    assert all((data == block(m.src.slot)).all() for m, data in found.items() if data is not None)
    assert io.rates.num_blocks == {
        (Tier.DEVICE, Tier.DISK): 20,
        (Tier.DISK, Tier.DEVICE): 20,
    }
    assert all(rate > 0 for rate in io.rates.bytes_per_second.values())


def test_bytes_are_taken_when_write_is_called(make, gate):
    io = make()
    gate.open.clear()
    data = block(1)
    io.write(demote(1, 1), data)
    data[:] = 0
    gate.open.set()
    io.flush(10)
    assert (read(gate, 1, key(1)) == block(1)).all()


def test_a_read_finds_what_is_still_on_its_way(make, gate):
    io = make()
    gate.open.clear()
    for n in (1, 2):
        io.write(demote(7, n), block(n))
    io.read(promote(7, 2))
    io.read(promote(7, 1))
    found, _ = collect_all(io)  # the disk stands still
    assert (found[promote(7, 2)] == block(2)).all()
    assert found[promote(7, 1)] is None


def test_a_write_that_ends_leaves_a_later_one_of_its_slot_findable(make, gate):
    io = make()
    gate.open.clear()
    io.write(demote(7, 1), block(1))
    while io._writes:  # until it is under way
        threading.Event().wait(0.001)
    io.write(demote(7, 2), block(2))
    write, second = gate._store.write, threading.Event()

    def write_once(records):
        write(records)
        gate._store.write = lambda records: (second.wait(10), write(records))

    gate._store.write = write_once
    gate.open.set()
    while io.num_queued > 1 or io._writes:  # the first has ended, the second is under way
        threading.Event().wait(0.001)
    io.read(promote(7, 2))
    arrived, _ = io.collect(0.05)
    second.set()
    assert [(move, (data == block(2)).all()) for move, data in arrived] == [(promote(7, 2), True)]


def test_a_write_waits_for_earlier_reads_of_its_slot(make):
    io = make(queue_bytes=BLOCK_BYTES)  # one buffer for reads
    for n in (1, 2):
        io.write(demote(n, n), block(n))
        io.flush(10)
    io.read(promote(1, 1))
    io.read(promote(2, 2))  # waits until the first is collected
    io.write(demote(2, 3), block(3))
    assert not io.flush(0.05)
    found, lost = collect_all(io)
    assert not lost
    assert (found[promote(2, 2)] == block(2)).all()
    assert io.flush(10)
    io.read(promote(2, 3))
    found, _ = collect_all(io)
    assert (found[promote(2, 3)] == block(3)).all()


def test_a_read_does_not_wait_for_a_write(make, gate):
    io = make()
    io.write(demote(0, 0), block(0))
    io.flush(10)
    gate.writes_may_end.clear()
    gate.is_writing.clear()
    io.write(demote(1, 1), block(1))
    assert gate.is_writing.wait(10)
    io.read(promote(0, 0))
    found, _ = collect_all(io)
    assert (found[promote(0, 0)] == block(0)).all()
    assert io.num_queued == 1
    gate.writes_may_end.set()
    assert io.flush(10)
    assert (read(gate, 1, key(1)) == block(1)).all()


def test_writes_wait_for_a_gap_between_steps(make, gate):
    io = make()
    io.write(demote(0, 0), block(0))
    io.flush(10)
    gate.num_writes = 0
    for n in range(1, 4):
        with io.computing():
            io.write(demote(n, n), block(n))
            io.read(promote(0, 0))
            found, _ = collect_all(io)
            assert (found[promote(0, 0)] == block(0)).all()
            threading.Event().wait(2 * GAP)
    assert (gate.num_writes, io.num_queued) == (0, 3)
    assert wait_until(lambda: io.num_queued == 0)  # nobody calls
    assert (read(gate, 3, key(3)) == block(3)).all()


@pytest.mark.parametrize("why", ["many", "old"])
def test_writes_that_do_not_wait_for_a_gap(make, gate, monkeypatch, why):
    if why == "old":
        monkeypatch.setattr(disk_io, "PATIENCE", GAP)
    io = make(queue_bytes=(1000 if why == "old" else 8) * BLOCK_BYTES)
    with io.computing():
        for n in range(7):
            io.write(demote(n, n), block(n))
        assert wait_until(lambda: io.num_queued <= 6)
        assert (read(gate, 0, key(0)) == block(0)).all()


def test_a_full_queue_loses_and_never_blocks(make, gate):
    io = make(queue_bytes=5 * BLOCK_BYTES)
    gate.open.clear()
    for n in range(20):
        io.write(demote(n, n), block(n))
    assert io.num_queued == 5
    assert not io.has_room
    _, lost = collect_all(io)
    assert lost == [demote(n, n) for n in range(5, 20)]
    gate.open.set()
    assert io.flush(10)
    assert sorted(slot for slot, _ in gate.entries()) == [0, 1, 2, 3, 4]
    io.write(demote(6, 6), block(6))
    assert io.flush(10)
    assert len(gate.entries()) == 6


def test_waiting_for_room(make, gate):
    io = make(queue_bytes=20 * BLOCK_BYTES)
    assert io.has_room
    gate.open.clear()
    for n in range(20):
        io.write(demote(n, n), block(n))
    assert io.collect(0.01) == ([], [])
    assert not io.has_room
    threading.Timer(0.05, gate.open.set).start()
    assert io.collect(10) == ([], [])
    assert io.has_room


def test_a_disk_that_hangs_does_not_hold_up_the_end(make, gate, caplog):
    io = make()
    gate.open.clear()
    io.write(demote(1, 1), block(1))
    io.close(timeout=0.01)
    assert "does not answer" in caplog.text


def test_many_writes_are_one_transaction(make, gate):
    io = make()
    gate.open.clear()
    for n in range(100):
        io.write(demote(n, n), block(n))
    gate.open.set()
    io.flush(10)
    assert gate.num_writes <= 2


def test_one_refusal_is_enough_for_all_that_are_queued(make, gate):
    io = make()
    gate.error = StoreError("no")
    gate.open.clear()
    io.write(demote(0, 0), block(0))
    while io._writes:  # until it is under way
        threading.Event().wait(0.001)
    for n in range(1, 20):
        io.write(demote(n, n), block(n))
    gate.open.set()
    io.flush(10)
    assert gate.num_writes == 1
    assert len(collect_all(io)[1]) == 20


@pytest.mark.parametrize("error", [StoreError("x: No space left on device"), ZeroDivisionError()])
def test_a_disk_that_refuses(make, gate, caplog, error):
    caplog.set_level(logging.INFO, logger="octavo")
    now = [0.0]
    io = make(clock=lambda: now[0])
    gate.error = error
    for n in range(10):
        io.write(demote(n, n), block(n))
        io.flush(10)
    assert gate.num_writes == 1  # then it rests
    assert not io.has_room
    _, lost = collect_all(io)
    assert sorted(m.dst.slot for m in lost) == list(range(10))
    now[0] += PAUSE + 1
    io.write(demote(1, 1), block(1))
    io.flush(10)
    assert gate.num_writes == 2
    assert collect_all(io)[1] == [demote(1, 1)]
    assert len(caplog.records) == 1  # one warning for it all
    assert str(error) in caplog.text
    gate.error = None
    now[0] += PAUSE + 1
    for n in (1, 2):
        io.write(demote(n, n), block(n))
    io.flush(10)
    assert "takes blocks again" in caplog.text
    assert len(caplog.records) == 2
    assert len(gate.entries()) == 2
    assert collect_all(io) == ({}, [])


def test_a_store_damaged_while_it_is_open_is_emptied(make, gate, caplog):
    now = [0.0]
    io = make(clock=lambda: now[0])
    for n in range(100):
        io.write(demote(n, n), block(n))
    io.flush(10)
    damage(gate)
    for n in range(100):
        io.read(promote(n, n))
    found, _ = collect_all(io)
    assert set(found.values()) == {None}
    assert "MDB_" in caplog.text
    now[0] += PAUSE + 1
    for n in range(50):
        io.write(demote(n, n), block(n))
    io.flush(10)
    assert len(gate.entries()) == 50
    for n in range(50):
        io.read(promote(n, n))
    found, _ = collect_all(io)
    assert all((data == block(move.src.slot)).all() for move, data in found.items())


def test_damage_that_both_threads_find_at_once(make, gate):
    now = [0.0]
    io = make(clock=lambda: now[0])
    for _ in range(10):
        for n in range(60):
            io.write(demote(n, n), block(n))
        io.flush(10)
        damage(gate)
        for n in range(30):
            io.read(promote(n, n))
            io.write(demote(60 + n, n), block(n))
        found, _ = collect_all(io)
        assert set(found.values()) == {None}
        io.flush(10)
        now[0] += PAUSE + 1
    collect_all(io)
    for n in range(30):
        io.write(demote(n, n), block(n))
    io.flush(10)
    for n in range(30):
        io.read(promote(n, n))
    found, _ = collect_all(io)
    assert all((data == block(move.src.slot)).all() for move, data in found.items())


def test_a_store_that_panics_in_a_write(make, gate):
    now = [0.0]
    io = make(clock=lambda: now[0])
    io.write(demote(1, 1), block(1))
    io.flush(10)

    class Panics:
        def begin(self, **kwargs):
            raise lmdb.PanicError("panic")

        def close(self):
            pass

    real, gate._file.env = gate._file.env, Panics()
    io.write(demote(2, 2), block(2))
    io.flush(10)
    assert collect_all(io)[1] == [demote(2, 2)]
    real.close()
    now[0] += PAUSE + 1
    io.write(demote(3, 3), block(3))
    io.flush(10)
    assert [slot for slot, _ in gate.entries()] == [3]


def test_close_writes_what_is_queued(make, gate, tmp_path):
    io = make()
    gate.open.clear()
    for n in range(50):
        io.write(demote(n, n), block(n))
    gate.open.set()
    io.close()
    io.write(demote(60, 60), block(60))  # too late, but no error
    io.read(promote(1, 1))
    found, lost = collect_all(io)
    assert (found, lost) == ({promote(1, 1): None}, [demote(60, 60)])
    store = open_store(tmp_path)
    assert len(store.entries()) == 50
    store.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_calls_against_a_dict(make, gate, seed):
    """Every read gives what its slot held when it was called, if no write to the slot was lost."""
    rng = random.Random(seed)
    io = make(queue_bytes=rng.choice([3, 12, 1000]) * BLOCK_BYTES, clock=lambda: now[0])
    now = [0.0]
    held: dict[int, Key] = {}
    unsure: set[int] = set()
    wanted: dict[Promote, bool | None] = {}
    num_found = 0

    def take(timeout: float) -> None:
        nonlocal num_found
        arrived, lost = io.collect(timeout)
        unsure.update(m.dst.slot for m in lost)
        for move, data in arrived:
            sure = wanted.pop(move)
            if data is not None:
                assert (data == block(int(move.dst))).all()
                num_found += 1
            if sure is not None and move.src.slot not in unsure:
                assert (data is not None) == sure

    for _ in range(1500):
        what = rng.random()
        slot, n = rng.randrange(12), rng.randrange(6)
        if what < 0.4:
            io.write(demote(slot, n), block(n))
            held[slot] = key(n)
        elif what < 0.8:
            move = Promote(Place(Tier.DISK, slot), n, key(n))  # dst says which block
            if move not in wanted:
                wanted[move] = held.get(slot) == key(n)
                io.read(move)
        elif what < 0.98:
            take(rng.choice([0.0, 0.0, 0.001]))
        else:
            gate.error = rng.choice([None, None, StoreError("no")])
            now[0] += PAUSE
    while io.num_pending:
        take(10.0)
    assert not wanted
    assert num_found

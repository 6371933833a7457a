"""The disk tier off the engine's thread: bounded queues, and a thread each that empties them.

    engine thread                               disk threads
    write(move, bytes) ── copied ──► writes ──► BlockStore.write, a few blocks a transaction
    read(move) ─────────────────────► reads ──► BlockStore.read, meanwhile
    collect() ◄── arrived · lost ◄───────────── both

Reads have a thread of their own because someone waits for them. Writes keep out of the way of steps
(`computing`) and of reads: they take a core and memory from the kernels. A conversation of 544
tokens whose blocks come from the disk while as many go there gets its first token in 25 ms, not 43.

The engine never waits for the disk: a write that finds the queue full is lost, and so are all
while the disk refuses them. What a slot holds follows the order of the calls: a read of a slot
whose write is still on its way gets those bytes, from memory, and a write waits for earlier reads
of its slot.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from octavo.errors import StoreError
from octavo.kv.moves import Demote, Promote, Tier
from octavo.runner.block_records import Bytes
from octavo.runner.block_store import BlockStore
from octavo.runner.rates import Rates
from octavo.runner.staging import Staging

log = logging.getLogger(__name__)

QUEUE_BYTES = 64 << 20
"""Most bytes that wait to be written; and to be collected after reading."""
BATCH_BYTES = 2 << 20
"""Most bytes of one transaction: a step that begins then has to bear it, some 5 ms. Larger ones are
no faster, 1.1 ms a block of 368,640 bytes."""
GAP = 0.02
"""Seconds without a step after which the disk is written."""
PATIENCE = 1.0
"""Most seconds that a write waits for such a gap."""
ROOM = 8
"""Writes that must fit into the queue for `has_room`."""
PAUSE = 30.0
"""Seconds without writing after the disk refused to."""

Arrival = tuple[Promote, Bytes | None]
"""A read that has ended, and the block; None if the slot does not hold it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    move: Demote
    data: Bytes
    since: float


class DiskIO:
    """Queues before a `BlockStore`. Its methods are the engine thread's; none raises."""

    def __init__(
        self,
        store: BlockStore,
        rates: Rates | None = None,
        queue_bytes: int = QUEUE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The store belongs to this object from here on. `rates` hears of what was moved."""
        self.store = store
        self.rates = Rates() if rates is None else rates
        self._clock = clock
        self._batch = max(1, BATCH_BYTES // store.block_bytes)
        self._write_buffers = Staging(queue_bytes, store.block_bytes)
        self._room = min(ROOM, self._write_buffers.num_free)
        self._read_buffers = Staging(queue_bytes, store.block_bytes)
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for the disk's threads
        self._done = threading.Condition(self._lock)  # for those who wait for them
        self._num_uncollected = 0  # reads; the engine's own
        # Under the lock:
        self._writes: deque[_Write] = deque()
        self._reads: deque[Promote] = deque()
        self._latest: dict[int, _Write] = {}  # the last write on its way, by slot
        self._arrived: list[Arrival] = []
        self._filled: list[Bytes] = []  # the buffers of those
        self._lent: list[Bytes] = []  # buffers that the engine reads from, until it collects again
        self._lost: list[Demote] = []
        self._being_read: Promote | None = None
        self._num_writing = 0
        self._closing = False
        self._paused_until = -math.inf
        self._quiet_from = -math.inf
        self._trouble = False
        self._threads: dict[Callable[[], None], threading.Thread] = {}

    # -- the engine's side -------------------------------------------------------------------

    @property
    def num_pending(self) -> int:
        """Reads that were not collected yet, and lost writes that were not."""
        return self._num_uncollected + len(self._lost)

    @property
    def num_queued(self) -> int:
        """Writes on their way to the disk."""
        return len(self._writes) + self._num_writing

    @property
    def refuses(self) -> bool:
        """True while the disk takes no writes, after one has failed."""
        return self._closing or self._clock() < self._paused_until

    @property
    def has_room(self) -> bool:
        """True if some more writes would be taken at once."""
        with self._lock:
            return self._has_room()

    def write(self, move: Demote, data: Bytes) -> None:
        """Queue a copy of `data`, the block of `move`. It is lost if the queue is full."""
        with self._lock:
            buffer = None if self.refuses else self._write_buffers.take()
            if buffer is None:
                self._lost.append(move)
                return
        np.copyto(buffer, data)
        with self._lock:
            write = _Write(move, buffer, time.monotonic())
            self._writes.append(write)
            self._latest[move.dst.slot] = write
            self._wake(self._write_all)

    def read(self, move: Promote) -> None:
        """Queue the read of a block."""
        self._num_uncollected += 1
        with self._lock:
            write = self._latest.get(move.src.slot)
            if write is not None:
                same = write.move.key == move.key
                self._arrived.append((move, write.data.copy() if same else None))
            elif self._closing:
                self._arrived.append((move, None))
            else:
                self._reads.append(move)
                self._wake(self._read_all)

    def collect(self, timeout: float = 0.0) -> tuple[list[Arrival], list[Demote]]:
        """Reads that have ended, and writes that were lost, since the last call.

        Waits up to `timeout` seconds for all reads to end, or as many as there are buffers for; if
        there are none, until there is room for writes. The arrays are valid until the next call.
        """
        with self._lock:
            for buffer in self._lent:
                self._read_buffers.give_back(buffer)
            self._lent = []
            if self._reads:
                self._work.notify_all()  # there is room for them now
            if timeout > 0 and self._num_uncollected:
                self._done.wait_for(self._reads_done, timeout)
            elif timeout > 0 and not self._lost and (self.num_queued or self.refuses):
                self._done.wait_for(self._has_room, timeout)
            arrived, self._arrived = self._arrived, []
            lost, self._lost = self._lost, []
            self._lent, self._filled = self._filled, []
        self._num_uncollected -= len(arrived)
        return arrived, lost

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A step. Writes wait for its end and a gap after it, unless they are old or many."""
        with self._lock:
            self._quiet_from = math.inf
        try:
            yield
        finally:
            with self._lock:
                self._quiet_from = time.monotonic() + GAP

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until every write is on disk or lost. False: not yet."""
        with self._done:
            self._quiet_from = -math.inf
            self._work.notify_all()
            return self._done.wait_for(lambda: not self.num_queued, timeout)

    def close(self, timeout: float = 10.0) -> None:
        """Write what is queued, for up to `timeout` seconds, then end the threads and the store."""
        self.flush(timeout)
        with self._lock:
            self._closing = True
            self._work.notify_all()
        for thread in list(self._threads.values()):
            thread.join(timeout=max(timeout, 1.0))
            if thread.is_alive():
                log.warning("disk KV: %s does not answer; left as it is", self.store.folder.path)
                return
        self.store.close()

    def _wake(self, work: Callable[[], None]) -> None:
        if work not in self._threads:
            self._threads[work] = threading.Thread(target=work, name="octavo-disk", daemon=True)
            self._threads[work].start()
        self._work.notify_all()

    # -- the disk's threads ------------------------------------------------------------------

    def _read_all(self) -> None:
        while True:
            with self._lock:
                self._work.wait_for(lambda: self._closing or self._can_read())
                buffer = None if self._closing else self._read_buffers.take()
                if buffer is None:
                    return
                self._being_read = self._reads.popleft()
            self._read(self._being_read, buffer)

    def _write_all(self) -> None:
        while True:
            with self._lock:
                while not (batch := self._next_batch() if self._may_write() else []):
                    if self._closing:
                        return
                    self._work.wait(GAP if self._writes else None)
                if self._closing:
                    return
                for _ in batch:
                    self._writes.popleft()
                self._num_writing = len(batch)
            self._write(batch)

    def _may_write(self) -> bool:
        if not self._writes:
            return False
        now, quarter = time.monotonic(), self._write_buffers.num / 4
        if now - self._writes[0].since > PATIENCE or self._write_buffers.num_free < quarter:
            return True
        return now >= self._quiet_from and self._being_read is None and not self._can_read()

    def _can_read(self) -> bool:
        return bool(self._reads) and self._read_buffers.num_free > 0

    def _has_room(self) -> bool:
        return not self.refuses and self._write_buffers.num_free >= self._room

    def _reads_done(self) -> bool:
        return self._being_read is None and not self._can_read()

    def _next_batch(self) -> list[_Write]:
        """The first writes in the queue that no earlier read of their slot holds up."""
        reading = {move.src.slot for move in self._reads}
        if self._being_read is not None:
            reading.add(self._being_read.src.slot)
        batch: list[_Write] = []
        for write in self._writes:
            if len(batch) == self._batch or write.move.dst.slot in reading:
                break
            batch.append(write)
        return batch

    def _read(self, move: Promote, buffer: Bytes) -> None:
        start = time.perf_counter()
        try:
            found = self.store.read(move.src.slot, move.key, buffer)
        except Exception as error:
            found = False
            self._report(error)
        seconds = time.perf_counter() - start
        if found:
            self.rates.add((Tier.DISK, Tier.DEVICE), 1, buffer.nbytes, seconds)
        with self._lock:
            self._being_read = None
            # A step waits for it, most likely.
            self._quiet_from = max(self._quiet_from, time.monotonic() + GAP)
            self._arrived.append((move, buffer if found else None))
            if found:
                self._filled.append(buffer)
            else:
                self._read_buffers.give_back(buffer)
            self._work.notify_all()  # a write may have waited for this
            if self._reads_done():  # not for each: the engine would wake up as often
                self._done.notify_all()

    def _write(self, batch: list[_Write]) -> None:
        start = time.perf_counter()
        try:
            self.store.write([(w.move.dst.slot, w.move.key, w.data) for w in batch])
        except Exception as error:
            self._report(error)
            written = False
        else:
            written = True
            num_bytes = sum(write.data.nbytes for write in batch)
            seconds = time.perf_counter() - start
            self.rates.add((Tier.DEVICE, Tier.DISK), len(batch), num_bytes, seconds)
            if self._trouble:
                log.info("disk KV: %s takes blocks again", self.store.folder.path)
                self._trouble = False
        with self._lock:
            self._num_writing = 0
            if not written:
                self._paused_until = self._clock() + PAUSE
                batch += self._writes
                self._writes.clear()
                self._lost += [write.move for write in batch]
            for write in batch:
                self._write_buffers.give_back(write.data)
                if self._latest.get(write.move.dst.slot) is write:
                    del self._latest[write.move.dst.slot]
            self._done.notify_all()

    def _report(self, error: Exception) -> None:
        """Say what went wrong, once until it goes well again; start anew if the file is damaged."""
        known = isinstance(error, StoreError)
        if not self._trouble:
            text = "%s; blocks stay in memory only, the disk is tried again every %.0f s"
            log.warning(f"disk KV: {text}", error, PAUSE, exc_info=not known)
            self._trouble = True
        if self.store.is_damaged:
            try:
                self.store.rebuild()
            except StoreError as again:
                log.warning("disk KV: cannot start an empty store: %s", again)

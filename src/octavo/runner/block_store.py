"""Blocks on disk, by slot number: they outlive the process.

lmdb against one preallocated file written with pwrite, 2,000 blocks of 368,640 bytes in turns, page
cache, checksums included: new blocks 990 against 4,610 MB/s, blocks replaced in random order 790
against 11,290 MB/s, reads 9,600 against 17,800 MB/s. A disk writes 500 to 3,000 MB/s, and a
server demotes tens of MB/s, so lmdb is fast enough, and it brings transactions, a free list and a
check of its structure. A thread of pure Python keeps 98 % of its speed while another thread writes
or reads: lmdb, checksums and copies let go of the interpreter. (The writer then waits up to 5 ms
for its turn, several times a block: 50 MB/s, until the other thread leaves Python too.)
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import lmdb
import numpy as np

from octavo.errors import StoreError
from octavo.kv.prefix import Key
from octavo.runner.block_file import (
    BlockFile,
    Damage,
    LmdbError,
    find_damage,
    record_bytes,
    slot_key,
)
from octavo.runner.block_records import Bytes, Label, checksum, has_right_length
from octavo.runner.fingerprint import Fingerprint
from octavo.runner.store_folder import StoreFolder, reason

log = logging.getLogger(__name__)

_FULL = 16 << 20
"""Bytes free on a disk below which a failed write needs no other reason."""


class BlockStore:
    """Slots 0 .. num_slots - 1 on disk, for one fingerprint and one process.

    A kill at any moment costs no more than the writes that had not returned. Bytes that changed
    on the disk are found by checksums: such a block is missing, never wrong. One thread may read
    while another does the rest.
    """

    def __init__(self, folder: StoreFolder, fingerprint: Fingerprint, num_bytes: int) -> None:
        """Use `open`."""
        self.folder = folder
        self.fingerprint = fingerprint
        self.block_bytes = fingerprint.block_bytes
        self.num_slots = num_bytes // record_bytes(self.block_bytes, fingerprint.block_size)
        self.is_damaged = False
        """True after an error that only `rebuild` can mend."""
        self._num_bytes = num_bytes
        self._seed = fingerprint.seed
        self._next = time.time_ns()  # sequence numbers: in order over restarts, too
        self._file: BlockFile | None = None
        self._reading, self._writing = threading.Lock(), threading.Lock()

    @classmethod
    def open(cls, directory: str | Path, fingerprint: Fingerprint, num_bytes: int) -> BlockStore:
        """The store for these blocks below `directory`, made if need be; at most `num_bytes`.

        A damaged store, and one of more than `num_bytes`, is emptied, with a warning. Raises
        StoreError: no access or no room, too few bytes for a block, another process uses it,
        another model's blocks lie there.
        """
        record = record_bytes(fingerprint.block_bytes, fingerprint.block_size)
        if num_bytes < record:
            raise StoreError(
                f"--disk-kv-bytes: expected at least {record:,}, the size of one block, "
                f"got {num_bytes:,}"
            )
        folder = StoreFolder.of(Path(directory).expanduser(), fingerprint)
        store = cls(folder, fingerprint, num_bytes)
        folder.lock()
        try:
            store._open_file()
        except BaseException as error:
            store.close()
            if isinstance(error, LmdbError):
                raise StoreError(f"{folder.path}: {reason(error)}") from None
            raise
        return store

    def _open_file(self) -> None:
        folder = self.folder
        about = folder.read_about()
        if about is not None and about.digest != self.fingerprint.digest:
            raise StoreError(
                f"{folder.path}: expected blocks of {self.fingerprint.model}, found those of "
                f"{about.model}; run `octavo cache clear {folder.path.parent}`"
            )
        why = self._why_empty(about) if folder.data.exists() else None
        if why is not None:
            log.warning("disk KV: %s: %s; all blocks in it are dropped", folder.path, why)
        if why is not None or about is None:
            folder.clear()
            folder.write_about(self.fingerprint)
        self._file = BlockFile(folder.path, self._num_bytes)

    def _why_empty(self, about: Fingerprint | None) -> str | None:
        if about is None:
            return "about.json is missing or damaged"
        damage = None if self.folder.take_closed() else find_damage(self.folder.data)
        if damage is not None:
            return f"damaged: {damage}"
        size, most = self.folder.data.stat().st_size, self._num_bytes * 9 // 8 + (64 << 20)
        return f"{size:,} bytes, more than --disk-kv-bytes allows" if size > most else None

    def entries(self) -> list[tuple[int, Key]]:
        """What lies in which slot, oldest first; blocks themselves are not read.

        Labels that are damaged, or of a slot that does not exist (any more), are deleted; if
        they cannot be listed at all, the store is emptied. Raises StoreError.
        """
        found, bad = [], []
        try:
            with self._using(self._writing) as file, file.env.begin(db=file.labels) as txn:
                for name, data in txn.cursor():
                    slot = int.from_bytes(name, sys.byteorder)
                    label = Label.unpack(data, self.fingerprint.block_size)
                    if not has_right_length(data):
                        # To delete or replace it would move the wrong bytes of its page.
                        raise lmdb.CorruptedError(f"label of slot {slot}: wrong length")
                    if label is None or slot >= self.num_slots:
                        bad.append(slot)
                    else:
                        found.append((label.sequence, slot, label.key))
        except StoreError as error:
            if not self.is_damaged:
                raise
            log.warning("disk KV: %s; damaged, so it is emptied", error)
            self.rebuild()
            return []
        if bad:
            log.warning("disk KV: %s: %d damaged entries dropped", self.folder.path, len(bad))
            self.drop(*bad)
        found.sort(key=lambda entry: entry[0])
        return [(slot, key) for _, slot, key in found]

    def write(self, records: Sequence[tuple[int, Key, Bytes]]) -> None:
        """Put each block into its slot, replacing what that held; all of them or none.

        Raises StoreError (disk full, not writable, ...); the store is then as it was.
        """
        with self._using(self._writing) as file, file.env.begin(write=True) as txn:
            for slot, key, data in records:
                label = Label(self._next, checksum(self._seed, key, data), key)
                txn.put(slot_key(slot), label.pack(), db=file.labels)
                txn.put(slot_key(slot), data.data, db=file.blocks)
                self._next += 1

    def read(self, slot: int, key: Key, out: Bytes) -> bool:
        """Copy the block in `slot` to `out`. False unless it is exactly `key`, intact.

        Raises StoreError if the store cannot be read at all; `out` may be overwritten in any case.
        """
        with self._using(self._reading) as file, file.env.begin(buffers=True) as txn:
            found = txn.get(slot_key(slot), db=file.labels)
            label = found and Label.unpack(bytes(found), self.fingerprint.block_size)
            if not label or label.key != key:
                return False
            data = txn.get(slot_key(slot), db=file.blocks)
            if data is None or len(data) != self.block_bytes:
                return False
            np.copyto(out, np.frombuffer(data, np.uint8))
        # Of the copy: what was checked is what is used.
        return checksum(self._seed, key, out) == label.checksum

    def drop(self, *slots: int) -> None:
        """Delete what these slots hold. Raises StoreError."""
        with self._using(self._writing) as file, file.env.begin(write=True) as txn:
            for slot in slots:
                txn.delete(slot_key(slot), db=file.labels)
                txn.delete(slot_key(slot), db=file.blocks)

    def rebuild(self) -> None:
        """Start again with an empty store. Raises StoreError if that does not work either."""
        with self._reading, self._writing:
            try:
                if self._file is not None:
                    self._file.close()
                    self._file = None
                self.folder.clear()
                self.folder.write_about(self.fingerprint)
                self._file = BlockFile(self.folder.path, self._num_bytes)
            except LmdbError as error:
                raise StoreError(f"{self.folder.path}: {reason(error)}") from None
            self.is_damaged = False

    def close(self) -> None:
        """Close the file and let other processes in."""
        with self._reading, self._writing:
            if self._file is not None:
                self._file.close()
                self._file = None
                if not self.is_damaged:
                    self.folder.mark_closed()
            self.folder.unlock()

    @contextmanager
    def _using(self, turn: threading.Lock) -> Iterator[BlockFile]:
        """The open file, which nobody closes meanwhile. What lmdb raises becomes StoreError."""
        with turn:
            if self._file is None:
                raise StoreError(f"{self.folder.path}: the store is closed")
            try:
                yield self._file
            except LmdbError as error:
                self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        self.is_damaged |= isinstance(error, Damage)
        why = reason(error)
        free = self.folder.free_bytes()
        if free is not None and free < _FULL:  # lmdb calls a write cut short an input/output error
            why = f"the disk is full: {free:,} bytes free ({why})"
        raise StoreError(f"{self.folder.path}: {why}") from None

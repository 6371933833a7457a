"""What `octavo cache` does with the block stores in a directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.errors import StoreError
from octavo.runner.block_file import BlockFile, LmdbError, find_damage
from octavo.runner.block_records import Label, checksum
from octavo.runner.fingerprint import Fingerprint
from octavo.runner.store_folder import StoreFolder, reason


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One store. `about`: whose blocks, None if that cannot be read; `pid`: the process that uses
    it, None if none does; `problem`: why it cannot be read, None if it can."""

    path: Path
    about: Fingerprint | None
    num_blocks: int
    num_tokens: int
    num_bytes: int
    pid: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What reading every block of one store found: `damaged` lists what is wrong, in words."""

    path: Path
    num_blocks: int
    damaged: list[str]


def store_infos(directory: Path) -> list[StoreInfo]:
    """Every store in `directory`. Raises StoreError if there is no such directory."""
    return [_info(folder) for folder in StoreFolder.all_in(directory)]


def check_stores(directory: Path) -> Iterator[StoreCheck]:
    """Read every block of every store and hold it against its checksum.

    Raises StoreError if a store is in use, or cannot be read at all.
    """
    for folder in StoreFolder.all_in(directory):
        folder.lock(shared=True)
        try:
            yield _check(folder)
        except LmdbError as error:
            raise StoreError(f"{folder.path}: {reason(error)}") from None
        finally:
            folder.unlock()


def clear_stores(directory: Path) -> int:
    """Delete every store in `directory` and nothing else; the number of stores.

    Raises StoreError, before anything is deleted, if one is in use.
    """
    folders = list(StoreFolder.all_in(directory))
    try:
        for folder in folders:
            folder.lock()
        for folder in folders:
            folder.clear(everything=True)
    except OSError as error:
        raise StoreError(f"{directory}: cannot be cleared: {reason(error)}") from None
    finally:
        for folder in folders:
            folder.unlock()
    return len(folders)


def _info(folder: StoreFolder) -> StoreInfo:
    about, size = folder.read_about(), _size(folder)
    pid = None
    try:
        folder.lock(shared=True)
    except StoreError:
        pid = folder.holder()
    problem = "about.json is missing or damaged" if about is None else None
    num_blocks = num_tokens = 0
    try:
        # lmdb's own locks let readers in beside a server; its file is only checked while it rests.
        if problem is None and folder.data.exists():
            problem = find_damage(folder.data) if pid is None else None
            if about is not None and problem is None:
                for label in _labels(folder, about):
                    num_blocks += 1
                    num_tokens += label.key.num_tokens if label else 0
    except LmdbError as error:
        problem = reason(error)
    finally:
        folder.unlock()
    return StoreInfo(folder.path, about, num_blocks, num_tokens, size, pid, problem)


def _labels(folder: StoreFolder, about: Fingerprint) -> Iterator[Label | None]:
    file = BlockFile(folder.path, 0, readonly=True)
    try:
        with file.env.begin(db=file.labels) as txn:
            for _, data in txn.cursor():
                yield Label.unpack(data, about.block_size)
    finally:
        file.close()


def _check(folder: StoreFolder) -> StoreCheck:
    about = folder.read_about()
    if about is None:
        return StoreCheck(folder.path, 0, ["about.json is missing or damaged"])
    damage = find_damage(folder.data) if folder.data.exists() else None
    if damage is not None:
        return StoreCheck(folder.path, 0, [f"structure: {damage}"])
    damaged, count = [], 0
    file = BlockFile(folder.path, 0, readonly=True)
    try:
        with file.env.begin(buffers=True) as txn:
            for name, found in txn.cursor(db=file.labels):
                count += 1
                label = Label.unpack(bytes(found), about.block_size)
                data = txn.get(bytes(name), db=file.blocks)
                slot = int.from_bytes(name, sys.byteorder)
                if label is None:
                    damaged.append(f"slot {slot}: its label")
                elif data is None or len(data) != about.block_bytes:
                    damaged.append(f"slot {slot}: its bytes are missing")
                elif label.checksum != checksum(
                    about.seed, label.key, np.frombuffer(data, np.uint8)
                ):
                    damaged.append(f"slot {slot}: its bytes")
    finally:
        file.close()
    return StoreCheck(folder.path, count, damaged)


def _size(folder: StoreFolder) -> int:
    """Bytes that the folder takes on the disk."""
    total = 0
    for path in folder.path.iterdir():
        total += path.stat().st_blocks * 512
    return total

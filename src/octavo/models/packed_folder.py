"""The folder of packed weights: file names, writing without harm, and room for new ones."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.models.packed_file import PackedPart, write_packed

log = logging.getLogger(__name__)

MAX_FOLDER_BYTES = 32 << 30
"""All packed files together; the ones not used for longest go first."""

_SPARE_BYTES = 1 << 30  # of the disk, left to others
_SUFFIX = ".packed"
_UNFINISHED = ".tmp"
_ABANDONED_SECONDS = 3600  # after the last write to an unfinished file, its writer is dead


@dataclass(frozen=True, slots=True)
class PackedName:
    """What the files of one model under one conversion are called; a key makes it one file."""

    model: str
    conversion: str

    @property
    def prefix(self) -> str:
        """How their names begin, and no others."""
        stem = "".join(c if c.isalnum() or c in "._" else "_" for c in Path(self.model).name)
        place = hashlib.sha256(self.model.encode()).hexdigest()[:8]
        return f"{stem[:60]}-{place}-{self.conversion}-"

    def file(self, key: str) -> str:
        """File name of the copy with that key."""
        return f"{self.prefix}{hashlib.sha256(key.encode()).hexdigest()[:16]}{_SUFFIX}"

    def any_in(self, folder: Path) -> bool:
        """True if there is a copy, whatever its key."""
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            return any(self._is_mine(e.name) for e in entries)
        return False

    def stale(self, folder: Path, key: str) -> list[Path]:
        """Copies made from an earlier state of the model, or by another version."""
        mine = (p for p in folder.iterdir() if self._is_mine(p.name))
        return [p for p in mine if p.name != self.file(key)]

    def _is_mine(self, file: str) -> bool:
        return file.startswith(self.prefix) and file.endswith(_SUFFIX)


def remove_abandoned(folder: Path) -> None:
    """Delete what a process that was killed had begun to write."""
    with contextlib.suppress(OSError):
        for file in folder.glob(f"*{_UNFINISHED}"):
            if time.time() - file.stat().st_mtime > _ABANDONED_SECONDS:
                file.unlink()


def save(
    folder: Path, name: PackedName, key: str, parts: Sequence[PackedPart], stop: threading.Event
) -> bool:
    """Write the copy under a name of its own, then move it into place: no reader sees half of it.

    True if it is there now. Anything that goes wrong is one warning and leaves the folder without
    it. Not synced to the disk: after a power failure the checksums tell.
    """
    path = folder / name.file(key)
    size = sum(p.data.nbytes for p in parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in name.stale(folder, key):
            old.unlink(missing_ok=True)
        if not _make_room(folder, size, keep=path):
            return False
        done = _write(path, key, parts, stop)
    except OSError as error:
        log.warning(
            "packed weights could not be kept in %s: %s; the next start packs them again "
            "(--no-packed-cache does not try)",
            folder,
            error,
        )
        return False
    if done:
        log.info("packed weights kept for the next start: %s (%.1f GB)", path, size / 1e9)
    return done


def _write(path: Path, key: str, parts: Sequence[PackedPart], stop: threading.Event) -> bool:
    handle, unfinished = tempfile.mkstemp(_UNFINISHED, path.name, path.parent)
    try:
        with open(handle, "wb") as file:
            for _ in write_packed(file, key, parts):
                if stop.is_set():
                    return False
        os.replace(unfinished, path)
        return True
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def _make_room(folder: Path, size: int, keep: Path) -> bool:
    """Delete the oldest copies until `size` more bytes fit the folder.

    False, with a warning, if they do not fit it or the disk.
    """
    remove_abandoned(folder)
    files = []
    for file in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # another process makes room too
            stat = file.stat()
            files += [(stat.st_mtime, stat.st_size, file)] if file != keep else []
    total = size + sum(num_bytes for _, num_bytes, _ in files)
    for _, num_bytes, file in sorted(files):
        if total <= MAX_FOLDER_BYTES or size > MAX_FOLDER_BYTES:
            break
        file.unlink(missing_ok=True)
        total -= num_bytes
    free = shutil.disk_usage(folder).free
    if size > MAX_FOLDER_BYTES or size + _SPARE_BYTES > free:
        log.warning(
            "packed weights (%.1f GB) are not kept: %s has %.1f GB free, and holds %.0f GB at most",
            *(size / 1e9, folder, free / 1e9, MAX_FOLDER_BYTES / 1e9),
        )
        return False
    return True

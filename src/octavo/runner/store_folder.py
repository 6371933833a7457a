"""The folder of one block store: whose blocks it holds, and who uses it now.

DIR/0123456789abcdef/     one folder for each fingerprint, named by its first digits
    about.json            the fingerprint in words, with a checksum
    lock                  locked while a process uses the store; holds its process id
    closed                size and time of data.mdb when it was last closed in good order
    data.mdb, lock.mdb    the blocks (lmdb)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import xxhash

from octavo.errors import StoreError
from octavo.runner.fingerprint import Fingerprint

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DATA = "data.mdb"
_NAME = re.compile(r"[0-9a-f]{16}")
_PATIENCE = 1.0  # seconds: `octavo cache info` holds the lock for a moment


class StoreFolder:
    """The folder of `fingerprint` below `directory`, or any folder found there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @classmethod
    def of(cls, directory: Path, fingerprint: Fingerprint) -> StoreFolder:
        """The folder for these blocks, made if need be. Raises StoreError if it cannot be."""
        path = directory / fingerprint.digest[:16]
        try:
            # What users wrote can be guessed from the blocks: they are for the owner's eyes.
            directory.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{directory}: {reason(error)}; {_REMEDY}") from None
        return cls(path)

    @classmethod
    def all_in(cls, directory: Path) -> Iterator[StoreFolder]:
        """Every folder in `directory` that looks like a store. Raises StoreError if there is no
        such directory."""
        try:
            paths = sorted(directory.iterdir())
            paths = [p for p in paths if _NAME.fullmatch(p.name) and (p / "lock").exists()]
        except OSError as error:
            raise StoreError(
                f"{directory}: expected the directory of --disk-kv-path, got: {reason(error)}"
            ) from None
        yield from map(cls, paths)

    @property
    def data(self) -> Path:
        """The file with the blocks."""
        return self.path / DATA

    def free_bytes(self) -> int | None:
        """Bytes that this user can still write to the disk; None if that cannot be told."""
        try:
            return shutil.disk_usage(self.path).free
        except OSError:
            return None

    def lock(self, shared: bool = False) -> None:
        """Keep other processes out until `unlock`. Raises StoreError naming the one that is in.

        `shared`: only those that write, and without leaving a trace.
        """
        if fcntl is None:
            raise StoreError(f"{self.path}: a block store needs file locks, this system has none")
        flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        try:
            fd = os.open(self.path / "lock", flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{self.path}: {reason(error)}; {_REMEDY}") from None
        try:
            _flock(fd, shared)
            if not shared:
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            os.close(fd)
            raise StoreError(
                f"{self.path}: in use by process {self.holder() or '(unknown)'}; "
                "give each server its own --disk-kv-path, or stop that one"
            ) from None
        except OSError as error:
            os.close(fd)
            raise StoreError(f"{self.path}: cannot be locked: {reason(error)}") from None
        self._lock = fd

    def unlock(self) -> None:
        """Let others in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def holder(self) -> int | None:
        """The process id in the lock file: of the one that is in, or was last."""
        try:
            return int((self.path / "lock").read_text())
        except (OSError, ValueError):
            return None

    def write_about(self, fingerprint: Fingerprint) -> None:
        """Say whose blocks these are. Raises OSError."""
        about = {"fingerprint": fingerprint.digest, **dataclasses.asdict(fingerprint)}
        text = json.dumps({**about, "checksum": _checksum(about)}, indent=2) + "\n"
        new = self.path / "about.json.new"
        new.write_text(text, encoding="utf-8")
        new.replace(self.path / "about.json")

    def read_about(self) -> Fingerprint | None:
        """Whose blocks these are; None if the file is missing or damaged."""
        try:
            about = json.loads((self.path / "about.json").read_text(encoding="utf-8"))
            checksum = about.pop("checksum")
            digest = about.pop("fingerprint")
            found = Fingerprint(**about)
            intact = checksum == _checksum({"fingerprint": digest, **about})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return found if intact and found.digest == digest else None

    def mark_closed(self) -> None:
        """Note that the blocks are in good order and nobody writes any more."""
        with contextlib.suppress(OSError):  # then the next start checks them
            (self.path / "closed").write_text(self._state_of_data())

    def take_closed(self) -> bool:
        """True, once, if the blocks have not been touched since `mark_closed`."""
        try:
            closed = (self.path / "closed").read_text() == self._state_of_data()
            (self.path / "closed").unlink()
        except OSError:
            return False
        return closed

    def _state_of_data(self) -> str:
        stat = self.data.stat()
        return f"{stat.st_size} {stat.st_mtime_ns}"

    def clear(self, everything: bool = False) -> None:
        """Delete the blocks, or the folder itself if `everything`. Raises OSError."""
        names = [DATA, "lock.mdb", "closed", "about.json", "about.json.new"]
        for name in [*names, "lock"] if everything else names:
            (self.path / name).unlink(missing_ok=True)
        if everything:
            self.path.rmdir()


_REMEDY = "--disk-kv-path needs a directory on a local disk that this user may write to"


def reason(error: Exception) -> str:
    """An error's text without number and path."""
    return getattr(error, "strerror", None) or str(error)


def _checksum(about: dict[str, object]) -> str:
    return xxhash.xxh3_128(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _flock(fd: int, shared: bool) -> None:
    """Lock the file, waiting a little. Raises BlockingIOError, or OSError where it cannot be."""
    end = time.monotonic() + _PATIENCE
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if shared or time.monotonic() > end:
                raise
        time.sleep(0.05)

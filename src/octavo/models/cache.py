"""The user's cache of model files: where it is, one writer at a time, checksums remembered."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system: renames still keep files whole
    fcntl = None  # type: ignore[assignment]


def cache_dir() -> Path:
    """$OCTAVO_CACHE, or octavo/ in $XDG_CACHE_HOME or ~/.cache. It may not exist yet."""
    own = os.environ.get("OCTAVO_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "octavo"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` against other processes; waits, saying so. Yields False if locks do not work here."""
    with path.open("a") as file:
        if fcntl is None:
            yield False
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another process that fetches the same model", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True  # closing the file lets go


def sha256_of(path: Path) -> str:
    """sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_verified(path: Path, size: int, sha256: str) -> bool:
    """True if the file has that size and checksum.

    A side file remembers the checksum for the file's size and time of change, so that a start need not read it all.
    """
    try:
        stat = path.stat()
    except OSError:
        return False
    if stat.st_size != size:
        return False
    seen = {"sha256": sha256, "size": size, "mtime_ns": stat.st_mtime_ns}
    marker = _marker(path)
    with contextlib.suppress(OSError, ValueError):
        if json.loads(marker.read_text()) == seen:
            return True
    if sha256_of(path) != sha256:
        return False
    with contextlib.suppress(OSError):  # a cache that cannot be written to still serves
        marker.write_text(json.dumps(seen))
    return True


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".verified.json")

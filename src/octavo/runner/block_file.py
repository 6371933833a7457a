"""lmdb as the block store uses it: opened only after its structure was checked.

Two tables, both by slot number: "label" (what is in the slot, `block_records.Label`) and "bytes"
(the block). Both are written in one transaction, and labels can be listed without touching blocks.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import lmdb
from lmdb.verify import VerifyError, verify

from octavo.runner.block_records import label_bytes

_PAGE = min(mmap.PAGESIZE, 32768)
_PAGE_HEADER = 16
_HEADROOM = 256 << 20  # lmdb's free list, and blocks that a running transaction replaces

LmdbError = (lmdb.Error, OSError)
"""What lmdb raises when a disk fails or is full."""

Damage = (
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""Those of them after which only an empty file helps."""


def record_bytes(block_bytes: int, block_size: int) -> int:
    """Room on disk for one block: lmdb keeps large values in whole pages, labels in half-full
    ones."""
    pages = -(-(block_bytes + _PAGE_HEADER) // _PAGE)
    return pages * _PAGE + 2 * label_bytes(block_size)


def find_damage(path: Path) -> str | None:
    """What is wrong with the structure of an lmdb file; None if nothing is. Raises OSError.

    lmdb follows page numbers without checking them all, so a flipped bit could end the process
    (one in 1,700 did, of those in inner pages). This check reads inner pages only, in Python:
    0.13 s for 1 GB of blocks. The blocks themselves have checksums.
    """
    try:
        problems = verify(str(path), subdir=False)  # type: ignore[no-untyped-call]
    except VerifyError as error:
        return str(error)
    except Exception as error:  # a checker that trips over what it checks has found something
        if isinstance(error, OSError):
            raise
        return f"unreadable structure ({error!r})"
    return str(problems[0]) if problems else None


class BlockFile:
    """An open lmdb environment of `num_slots` slots and its two tables."""

    def __init__(self, folder: Path, num_bytes: int, *, readonly: bool = False) -> None:
        """`num_bytes`: all records together. Raises lmdb.Error."""
        # Durability. Each commit syncs the blocks before it writes the page that makes them count,
        # but does not wait for that page (metasync off): after a crash of the machine the file is
        # whole, as of some commit before. A killed process loses only what was not committed. sync
        # off would be a third faster, yet a crash of the machine could leave pointers to pages
        # that never came to the disk. writemap would be faster still, but a full disk is then a
        # SIGBUS instead of an error.
        self.env = lmdb.open(
            str(folder),
            map_size=num_bytes + num_bytes // 8 + _HEADROOM,
            max_dbs=2,
            metasync=False,
            readonly=readonly,
            create=not readonly,
            mode=0o600,
            meminit=False,
        )
        try:
            self.labels = self.env.open_db(b"label", integerkey=True, create=not readonly)
            self.blocks = self.env.open_db(b"bytes", integerkey=True, create=not readonly)
        except BaseException:
            self.env.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.env.close()


def slot_key(slot: int) -> bytes:
    """A slot number as lmdb's integer keys want it."""
    return slot.to_bytes(8, sys.byteorder)

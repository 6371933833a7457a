"""Packed weights kept on disk: a large model is quantised and packed at its first start only.

Where: `packed/` in the user's cache directory. The files may be deleted at any time; the next start
makes them again.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from octavo.models.packed_file import U8, Matrices, PackedFile, PackedFileError, PackedPart
from octavo.models.packed_folder import PackedName, remove_abandoned, save

log = logging.getLogger(__name__)

WORTH_SECONDS = 1.0
"""Processor time of packing from which a copy is kept: about that of a billion weights.

The default model takes a tenth.
"""

EXIT_SECONDS = 5.0
"""How long an exit waits for a copy that is being written; then it is given up."""


class PackedCopy:
    """The copy of one model's weights under one conversion, during one load.

    `take` parts from it and `keep` those that it lacked; `finish` decides whether to write it.
    """

    def __init__(
        self, folder: Path, name: PackedName, key: Callable[[], str], threads: int = 1
    ) -> None:
        """`key()` tells what is packed and how, exactly.

        It is not called unless a copy is there or to be written.
        """
        self._folder = folder
        self._name = name
        self._key = key
        self._parts: list[PackedPart] = []
        self._damaged = False
        self._file: PackedFile | None = None
        self._writer: threading.Thread | None = None
        if name.any_in(folder):
            remove_abandoned(folder)
            self._file = self._open(threads)

    def take(self, name: str, matrices: Matrices, width: int) -> U8 | None:
        """The packed bytes of a part, in the mapped file; None if they have to be prepared."""
        if self._file is None:
            return None
        try:
            data = self._file.take(name, matrices, width)
        except PackedFileError as error:
            log.warning("packed weights %s: %s; packing it again", self._path(), error)
            data = None
        if data is None:
            self._damaged = True
        else:
            self._parts.append(PackedPart(name, matrices, width, data))
        return data

    def keep(self, part: PackedPart) -> None:
        """Note a part that was prepared. Its memory must not change until the copy is written."""
        self._parts.append(part)

    def finish(self, seconds: float) -> None:
        """All parts are there; preparing took `seconds` of processor time. Writes if that pays.

        In the background: what is written is memory that no one changes, by calls that hold no
        lock of Python's, so that a server can answer meanwhile. A copy that is not done at exit,
        nor soon after, is given up.
        """
        if self._file is not None:
            self._file.close()
            if not self._damaged:
                log.info("packed weights from %s", self._path())
        parts, self._parts = self._parts, []
        if not self._damaged and (self._file is not None or seconds < WORTH_SECONDS):
            return
        stop = threading.Event()
        folder, name, key = self._folder, self._name, self._key()

        def write() -> None:
            save(folder, name, key, parts, stop)

        self._writer = threading.Thread(target=write, name="packed-copy", daemon=True)
        self._writer.start()
        atexit.register(_end, self._writer, stop)

    def wait(self) -> None:
        """Wait until a copy that is being written is there."""
        if self._writer is not None:
            self._writer.join()

    def _path(self) -> Path:
        return self._folder / self._name.file(self._key())

    def _open(self, threads: int) -> PackedFile | None:
        path = self._path()
        try:
            file = PackedFile(path, self._key(), threads)
            os.utime(path)  # used now: it goes last when room is needed
        except FileNotFoundError:
            log.debug("packed weights: no %s; those that there are were made otherwise", path)
        except PackedFileError as error:
            self._damaged = True
            log.warning("packed weights %s are not used: %s; packing again", path, error)
        except OSError as error:
            log.warning("packed weights %s cannot be read: %s; packing again", path, error)
        else:
            return file
        return None


def _end(writer: threading.Thread, stop: threading.Event) -> None:
    """At exit: a short program waits a while for its copy, or each of its runs would pack again."""
    with contextlib.suppress(KeyboardInterrupt):
        writer.join(EXIT_SECONDS)
    stop.set()
    writer.join()

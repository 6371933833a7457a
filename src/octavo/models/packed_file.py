"""A file of packed weights: memory as the kernels want it, each part with its checksum.

    8 bytes  magic
    8 bytes  length of the header, little-endian
    8 bytes  its checksum (xxh3)
    header   JSON: key, bytes of all parts, and of each part its name, matrices, width, offset,
             size and checksum
    parts    each at a multiple of 4096, offsets counted from the first one; the file ends at
             such a multiple

A mapping of the file is thus the memory that the kernels read. The key says what was packed and
how; a file with another key is not the one that is looked for.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

U8 = npt.NDArray[np.uint8]
Matrices = tuple[tuple[str, int], ...]
"""(format, outputs) of the matrices that are stacked in a part."""

_MAGIC = b"octavopk"
_START = struct.Struct("<8sQQ")
_PAGE = 4096
_MAX_HEADER = 64 << 20
_CHUNK = 16 << 20


@dataclass(frozen=True, slots=True)
class PackedPart:
    """Packed matrices [sum of outputs, width]; data: uint8 [bytes]."""

    name: str
    matrices: Matrices
    width: int
    data: U8


class PackedFileError(Exception):
    """The file is none, is damaged, or was made from something else; the message says which."""


class PackedFile:
    """An open packed file, mapped read-only. `threads` check its parts, in order, from now on.

    Raises PackedFileError if it cannot be the file of that key, OSError if it cannot be read.
    """

    def __init__(self, path: Path, key: str, threads: int) -> None:
        with path.open("rb") as file:
            header, begin = _read_header(file, key)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = np.frombuffer(mapped, np.uint8)[begin:]
        try:
            self._parts = {
                name: (_matrices(matrices), width, data[_span(offset, size, data.size)], checksum)
                for name, matrices, width, offset, size, checksum in header["parts"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise PackedFileError(f"its list of parts is damaged ({error!r})") from None
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="packed-check")
        self._checks: dict[str, Future[bool]] = {
            name: self._threads.submit(_is_sound, part[2], part[3])
            for name, part in self._parts.items()
        }

    def take(self, name: str, matrices: Matrices, width: int) -> U8 | None:
        """The part's bytes, checked; they keep the mapping alive. None if there is no such part.

        Raises PackedFileError if its checksum is wrong.
        """
        part = self._parts.get(name)
        if part is None or part[:2] != (matrices, width):
            return None
        if not self._checks[name].result():
            raise PackedFileError(f"the checksum of {name} is wrong")
        return part[2]

    def close(self) -> None:
        """No more parts are wanted. Those that were taken stay valid."""
        self._threads.shutdown(cancel_futures=True)


def write_packed(file: BinaryIO, key: str, parts: Sequence[PackedPart]) -> Iterator[None]:
    """Write a packed file; yields now and then, so that the caller may stop. Raises OSError."""
    checksums = []
    for part in parts:
        checksums.append(xxhash.xxh3_64_intdigest(part.data.data))
        yield
    entries, total = [], 0
    for part, checksum in zip(parts, checksums, strict=True):
        size = int(part.data.size)
        entries.append((part.name, part.matrices, part.width, total, size, checksum))
        total += _pages(size)
    text = json.dumps({"key": key, "size": total, "parts": entries}).encode()
    start = _START.pack(_MAGIC, len(text), xxhash.xxh3_64_intdigest(text)) + text
    file.write(start.ljust(_pages(len(start)), b"\0"))
    for part in parts:
        for at in range(0, part.data.size, _CHUNK):
            file.write(part.data[at : at + _CHUNK].data)
            yield
        file.write(bytes(-part.data.size % _PAGE))


def _pages(num_bytes: int) -> int:
    return -(-num_bytes // _PAGE) * _PAGE


def _read_header(file: BinaryIO, key: str) -> tuple[dict[str, Any], int]:
    """The header, and where the first part begins."""
    start = file.read(_START.size)
    if len(start) < _START.size:
        raise PackedFileError("it is cut off in its first bytes")
    magic, length, checksum = _START.unpack(start)
    if magic != _MAGIC:
        raise PackedFileError("it is no file of packed weights")
    text = file.read(length) if length <= _MAX_HEADER else b""
    if xxhash.xxh3_64_intdigest(text) != checksum:
        raise PackedFileError("its header is damaged")
    header: dict[str, Any] = json.loads(text)
    if header["key"] != key:
        raise PackedFileError("it was made from another model, or by another version")
    begin = _pages(_START.size + length)
    found, expected = file.seek(0, 2), begin + header["size"]
    if found != expected:
        raise PackedFileError(f"expected {expected} bytes, found {found}")
    return header, begin


def _matrices(entry: list[list[object]]) -> Matrices:
    return tuple((str(type), int(str(outputs))) for type, outputs in entry)


def _span(offset: int, size: int, end: int) -> slice:
    if offset % _PAGE or not 0 <= offset <= offset + size <= end:
        raise ValueError(f"{size} bytes at {offset}")
    return slice(offset, offset + size)


def _is_sound(data: U8, checksum: int) -> bool:
    return bool(xxhash.xxh3_64_intdigest(data.data) == checksum)

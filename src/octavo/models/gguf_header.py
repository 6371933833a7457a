"""The header of a GGUF file: a cursor that never leaves the file, and the metadata values.

The `gguf` package reads headers too, but its reader makes an array of every string: about 2 s for a vocabulary
of 49,000 tokens, against some 0.05 s here. Format: the GGUF specification of the ggml project, versions 2 and 3.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Any, NoReturn

import numpy as np

from octavo.errors import MalformedModelError

MAX_NAME = 65535
MAX_ARRAY = 2**24
MAX_DEPTH = 4

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

# Value type -> struct format of one value.
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9


class Cursor:
    """Reads little-endian values from `buffer`, moving `offset`. Every read that would leave it raises.

    All errors are MalformedModelError and name `source` (the file) and the offset.
    """

    def __init__(self, buffer: mmap | bytes, source: str) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.offset = 0
        self.source = source

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise, naming the file and the offset (where the cursor stands, if not given)."""
        at = self.offset if offset is None else offset
        raise MalformedModelError(f"{self.source}: at offset {at}: {message}")

    def need(self, num_bytes: int, what: str) -> None:
        """Make sure that so many bytes follow."""
        if num_bytes > self.size - self.offset:
            self.fail(
                f"expected {num_bytes} bytes of {what}, but the file ends after "
                f"{self.size - self.offset}; it is truncated or damaged"
            )

    def u32(self, what: str) -> int:
        """The next uint32."""
        self.need(4, what)
        value: int = _U32.unpack_from(self.buffer, self.offset)[0]
        self.offset += 4
        return value

    def u64(self, what: str) -> int:
        """The next uint64."""
        self.need(8, what)
        value: int = _U64.unpack_from(self.buffer, self.offset)[0]
        self.offset += 8
        return value

    def count(self, what: str, bytes_each: int, limit: int) -> int:
        """The next uint64 as a number of items, `bytes_each` at least, that must fit in the rest of the file."""
        start = self.offset
        value = self.u64(what)
        if value > limit or value * bytes_each > self.size - self.offset:
            self.fail(
                f"{value} {what} cannot be: the file has {self.size - self.offset} more bytes "
                f"(limit: {limit}); it is truncated or damaged",
                start,
            )
        return value

    def string(self, what: str, limit: int | None = None) -> str:
        """The next string: uint64 length, UTF-8."""
        start = self.offset
        length = self.u64(what)
        if limit is not None and length > limit:
            self.fail(f"expected at most {limit} bytes of {what}, got a length of {length}", start)
        self.need(length, what)
        raw = self.buffer[self.offset : self.offset + length]
        self.offset += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.fail(f"expected UTF-8 in {what}: {error}", start)


def read_value(cursor: Cursor, key: str, kind: int, depth: int = 0) -> Any:
    """One metadata value of type `kind` as a plain Python value (array: list)."""
    if kind == _STRING:
        return cursor.string(key)
    if kind == _ARRAY:
        return _read_array(cursor, key, depth)
    scalar = _SCALARS.get(kind)
    if scalar is None:
        cursor.fail(f"{key}: unknown value type {kind}")
    cursor.need(scalar.size, key)
    value = scalar.unpack_from(cursor.buffer, cursor.offset)[0]
    if kind == _BOOL:
        if value > 1:
            cursor.fail(f"{key}: expected a bool of 0 or 1, got {value}")
        value = bool(value)
    cursor.offset += scalar.size
    return value


def _read_array(cursor: Cursor, key: str, depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        cursor.fail(f"{key}: arrays are nested more than {MAX_DEPTH} deep")
    kind = cursor.u32(key)
    if kind == _STRING:
        return _read_strings(cursor, key, cursor.count(f"strings in {key}", 8, MAX_ARRAY))
    if kind == _ARRAY:
        num = cursor.count(f"arrays in {key}", 12, MAX_ARRAY)
        return [_read_array(cursor, key, depth + 1) for _ in range(num)]
    scalar = _SCALARS.get(kind)
    if scalar is None:
        cursor.fail(f"{key}: unknown array type {kind}")
    num = cursor.count(f"values in {key}", scalar.size, MAX_ARRAY)
    values = np.frombuffer(cursor.buffer, np.dtype(scalar.format), num, cursor.offset)
    if kind == _BOOL:
        if num and int(values.max()) > 1:
            cursor.fail(f"{key}: expected bools of 0 or 1, got {int(values.max())}")
        values = values.astype(bool)
    cursor.offset += num * scalar.size
    result: list[Any] = values.tolist()
    return result


def _read_strings(cursor: Cursor, key: str, num: int) -> list[str]:
    """The hot loop: vocabularies have hundreds of thousands of strings."""
    buffer, offset, size = cursor.buffer, cursor.offset, cursor.size
    unpack = _U64.unpack_from
    strings = []
    try:
        for _ in range(num):
            start = offset + 8
            offset = start + unpack(buffer, offset)[0]
            if offset > size:
                raise struct.error
            strings.append(buffer[start:offset].decode())
    except struct.error:
        cursor.fail(f"string {len(strings)} of {key} leaves the file", start)
    except UnicodeDecodeError as error:
        cursor.fail(f"expected UTF-8 in string {len(strings)} of {key}: {error}", start)
    cursor.offset = offset
    return strings

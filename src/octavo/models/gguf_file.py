"""A GGUF file: header checked, tensors as views of the memory-mapped file."""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.models.files import map_file
from octavo.models.formats import FORMATS_BY_ID, row_bytes, unsupported_type
from octavo.models.gguf_header import MAX_NAME, Cursor, read_value
from octavo.ops.base import WeightTensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_DIM = 2**40
MAX_TENSORS = 2**16
MAX_KEYS = 2**16
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufFile:
    """`metadata`: plain Python values; `tensors` by their GGUF names, rows first, data not copied."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, WeightTensor]


@dataclass(frozen=True, slots=True)
class _Info:
    name: str
    dims: tuple[int, ...]
    type_id: int
    start: int
    at: int


def read_gguf(path: Path) -> GgufFile:
    """Read the header of a GGUF file and map its tensors.

    Raises MalformedModelError naming the file and the offset or tensor, UnsupportedModelError for a version, byte
    order or tensor type that Octavo does not know.
    """
    buffer = map_file(path)
    cursor = Cursor(buffer, str(path))
    num_tensors, num_keys = _read_counts(cursor)
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        start = cursor.offset
        key = cursor.string("a metadata key", MAX_NAME)
        if key in metadata:
            cursor.fail(f"metadata key {key!r} appears twice", start)
        metadata[key] = read_value(cursor, key, cursor.u32(key))
    _refuse_split(metadata, cursor)
    alignment = _alignment(metadata, cursor)
    infos = [_read_info(cursor) for _ in range(num_tensors)]
    data_start = -(-cursor.offset // alignment) * alignment
    return GgufFile(path, metadata, _map_tensors(buffer, infos, data_start, alignment, cursor))


def _read_counts(cursor: Cursor) -> tuple[int, int]:
    """Magic, version, number of tensors and of metadata keys."""
    cursor.need(4, "magic")
    magic = cursor.buffer[:4]
    if magic != MAGIC:
        cursor.fail(f"expected the magic {MAGIC!r}, got {magic!r}; this is not a GGUF file")
    cursor.offset = 4
    version = cursor.u32("version")
    if version not in VERSIONS:
        why = "big-endian files are" if version & 0xFFFF == 0 else f"GGUF version {version} is"
        raise UnsupportedModelError(
            f"{cursor.source}: at offset 4: {why} not supported; supported: little-endian, versions 2 and 3"
        )
    num_tensors = cursor.count("tensors", 28, MAX_TENSORS)
    num_keys = cursor.count("metadata keys", 13, MAX_KEYS)
    return num_tensors, num_keys


def _refuse_split(metadata: Mapping[str, Any], cursor: Cursor) -> None:
    parts = metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedModelError(
            f"{cursor.source}: one of {parts} parts of a split GGUF file, which is not supported; "
            "join the parts first: llama-gguf-split --merge FIRST_PART OUTPUT"
        )


def _alignment(metadata: Mapping[str, Any], cursor: Cursor) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or not 0 < value <= 2**20 or value & (value - 1):
        raise MalformedModelError(
            f"{cursor.source}: general.alignment: expected a power of two up to 2^20, got {value!r:.80}"
        )
    return value


def _read_info(cursor: Cursor) -> _Info:
    at = cursor.offset
    name = cursor.string("a tensor name", MAX_NAME)
    num_dims = cursor.u32(f"dimensions of {name!r}")
    if not 1 <= num_dims <= MAX_DIMS:
        cursor.fail(f"tensor {name!r}: expected 1 to {MAX_DIMS} dimensions, got {num_dims}", at)
    dims = tuple(cursor.u64(f"dimensions of {name!r}") for _ in range(num_dims))
    if not all(1 <= d <= MAX_DIM for d in dims):
        cursor.fail(f"tensor {name!r}: impossible dimensions {dims}", at)
    return _Info(name, dims, cursor.u32(f"type of {name!r}"), cursor.u64(f"offset of {name!r}"), at)


def _map_tensors(
    buffer: mmap.mmap | bytes, infos: list[_Info], data_start: int, alignment: int, cursor: Cursor
) -> dict[str, WeightTensor]:
    """Views of the data section, after checks: names, alignment, bounds, no overlap."""
    tensors: dict[str, WeightTensor] = {}
    spans: list[tuple[int, int, str]] = []
    for info in infos:
        if info.name in tensors:
            cursor.fail(f"tensor {info.name!r} appears twice", info.at)
        if info.start % alignment:
            cursor.fail(
                f"tensor {info.name!r}: expected an offset that is a multiple of {alignment}, "
                f"got {info.start}",
                info.at,
            )
        num_bytes, row = _tensor_bytes(info, cursor)
        start = data_start + info.start
        if start + num_bytes > cursor.size:
            cursor.fail(
                f"tensor {info.name!r}: its {num_bytes} bytes at offset {start} leave the file "
                f"of {cursor.size} bytes; it is truncated or damaged",
                info.at,
            )
        data = np.frombuffer(buffer, np.uint8, num_bytes, start).reshape(-1, row)
        shape = tuple(reversed(info.dims))
        tensors[info.name] = WeightTensor(info.name, shape, FORMATS_BY_ID[info.type_id].name, data)
        spans.append((start, start + num_bytes, info.name))
    spans.sort()
    for (_, end, name), (start, _, other) in itertools.pairwise(spans):
        if start < end:
            cursor.fail(f"tensors {name!r} and {other!r} overlap", start)
    return tensors


def _tensor_bytes(info: _Info, cursor: Cursor) -> tuple[int, int]:
    """Bytes of the tensor and of one of its rows."""
    form = FORMATS_BY_ID.get(info.type_id)
    if form is None:
        raise unsupported_type(cursor.source, info.name, _type_name(info.type_id))
    row = row_bytes(form.name, info.dims[0])
    if row is None:
        cursor.fail(
            f"tensor {info.name!r}: expected rows of a multiple of {form.block} elements "
            f"for {form.name}, got {info.dims[0]}",
            info.at,
        )
    return row * math.prod(info.dims[1:]), row


def _type_name(type_id: int) -> str:
    from gguf.constants import GGMLQuantizationType

    try:
        return GGMLQuantizationType(type_id).name
    except ValueError:
        return f"number {type_id}"

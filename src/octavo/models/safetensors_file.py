"""Safetensors files: one, or shards with an index; tensors as views of the memory-mapped files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import MalformedModelError, ModelNotFoundError, UnsupportedModelError
from octavo.models.files import map_file, read_json
from octavo.models.formats import FLOAT_FORMATS, unsupported_type
from octavo.ops.base import WeightTensor

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_HEADER = 100_000_000
"""Bytes; the safetensors format's own limit."""


def read_safetensors_dir(directory: Path) -> dict[str, WeightTensor]:
    """All tensors of a model directory by name, not copied.

    Raises ModelNotFoundError if there are no weights, UnsupportedModelError for pickled ones,
    MalformedModelError naming the file and the tensor or offset.
    """
    if (directory / INDEX).is_file():
        return _read_shards(directory / INDEX)
    if (directory / SINGLE).is_file():
        return read_safetensors(directory / SINGLE)
    files = sorted(directory.glob("*.safetensors"))
    if len(files) == 1:
        return read_safetensors(files[0])
    if files:
        raise MalformedModelError(
            f"{directory}: expected {SINGLE}, or {INDEX} beside several files, "
            f"got {', '.join(f.name for f in files[:5])}"
        )
    pickles = sorted([*directory.glob("*.bin"), *directory.glob("*.pt"), *directory.glob("*.pth")])
    if pickles:
        raise UnsupportedModelError(
            f"{pickles[0]}: pickled PyTorch weights are not supported: loading a pickle can run any code "
            "that its author put in it. Use the model's safetensors or GGUF files, or convert it: load it "
            "with transformers where that is safe and call save_pretrained(DIR)"
        )
    raise ModelNotFoundError(f"{directory}: expected {SINGLE}, {INDEX} or a .gguf file, found none")


def _read_shards(index_path: Path) -> dict[str, WeightTensor]:
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise MalformedModelError(f"{index_path}: weight_map: expected an object of tensor: file")
    shards: dict[str, dict[str, WeightTensor]] = {}
    tensors: dict[str, WeightTensor] = {}
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            raise MalformedModelError(
                f"{index_path}: {name}: expected the name of a file beside it, got {file_name!r:.80}"
            )
        if file_name not in shards:
            path = index_path.parent / file_name
            if not path.is_file():
                raise MalformedModelError(
                    f"{index_path}: {name} is in {file_name}, which is missing; "
                    "fetch the model again"
                )
            shards[file_name] = read_safetensors(path)
        if name not in shards[file_name]:
            raise MalformedModelError(f"{index_path}: {file_name} has no tensor {name!r}")
        tensors[name] = shards[file_name][name]
    return tensors


def read_safetensors(path: Path) -> dict[str, WeightTensor]:
    """The tensors of one file. The library checks the header; the data is mapped here.

    (The library cannot give bf16 to NumPy.) Tensors of other types than F32, F16 and BF16 come as they are, to be
    refused by name if the model needs them.
    """
    from safetensors import SafetensorError, safe_open

    buffer = map_file(path)
    length = int.from_bytes(buffer[:8], "little")
    if len(buffer) < 8 or length > min(len(buffer) - 8, MAX_HEADER):
        raise MalformedModelError(
            f"{path}: at offset 0: expected the length of a header that fits in the file of "
            f"{len(buffer)} bytes, got {length}; it is truncated or damaged"
        )
    try:
        with safe_open(path, framework="numpy"):
            pass
        header = json.loads(bytes(buffer[8 : 8 + length]))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise MalformedModelError(
            f"{path}: at offset 8: bad safetensors header: {error}"
        ) from error
    start = 8 + length
    header.pop("__metadata__", None)
    return {name: _view(path, buffer, start, name, entry) for name, entry in header.items()}


def _view(path: Path, buffer: Any, start: int, name: str, entry: Mapping[str, Any]) -> WeightTensor:
    begin, end = entry["data_offsets"]
    shape, kind = tuple(entry["shape"]), entry["dtype"]
    data = np.frombuffer(buffer, np.uint8, end - begin, start + begin)
    rows = math.prod(shape[:-1])
    if kind not in FLOAT_FORMATS or data.size == 0:
        rows = 1
    return WeightTensor(name, shape, kind, data.reshape(rows, -1))


def require_float(weight: WeightTensor, source: str) -> None:
    """Raise UnsupportedModelError unless the tensor is F32, F16 or BF16."""
    if weight.type not in FLOAT_FORMATS:
        raise unsupported_type(source, weight.name, weight.type)

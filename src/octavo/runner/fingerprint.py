"""What a block's bytes depend on besides its tokens: blocks on disk are used by nobody else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from octavo.config import ModelConfig
from octavo.models.checkpoint import Checkpoint
from octavo.models.packed_key import state_of_files
from octavo.ops.base import Ops
from octavo.runner.kv_storage import KVShape

FORMAT = 1
"""Version of the records in a block store; a change makes every older store another model's."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)


@dataclass(frozen=True)
class Fingerprint:
    """The parts, in words where they can be; all but the model's name count.

    weights: a sample of each tensor (`Checkpoint.fingerprint`) with the names, sizes and times of
    change of the files. To read all of an 8B model at each start would take seconds; any file that
    was written again has another time, and the sample tells apart files whose times were set alike.
    The price: a model that was copied or downloaded again is taken for another.
    tokenizer: a hash of its files. conversion: what became of the weights while loading.
    kv: shape and type of a block. ops: op set with its instruction set, and the build of the
    kernels, since another build may round otherwise. format: of the records, and the byte order.
    """

    model: str
    weights: str
    tokenizer: str
    conversion: str
    kv_dtype: str
    block_size: int
    block_bytes: int
    kv: str
    ops: str
    format: str = f"{FORMAT} {sys.byteorder}"

    @cached_property
    def digest(self) -> str:
        """64 hex digits."""
        parts = dataclasses.asdict(self)
        del parts["model"]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def seed(self) -> int:
        """64 bits of it, for the checksums of blocks."""
        return int(self.digest[:16], 16)


def fingerprint(
    checkpoint: Checkpoint,
    config: ModelConfig,
    shape: KVShape,
    ops: Ops,
    max_model_len: int,
    version: str,
    name: str | None = None,
) -> Fingerprint:
    """The fingerprint of blocks of `shape` that this model computes on `ops`.

    `max_model_len` counts only where positions are stretched by the longest context served.
    `version` is Octavo's. `name` is what people call the model, by default that of its file.
    """
    files = json.dumps([checkpoint.fingerprint, state_of_files(checkpoint.path)])
    conversion = config.quantization or config.dtype
    if conversion != "auto":
        from importlib import metadata

        conversion += f" gguf {metadata.version('gguf')}"
    if checkpoint.spec.rope.kind == "dynamic":
        conversion += f" positions {max_model_len}"
    return Fingerprint(
        model=name or checkpoint.path.name,
        weights=hashlib.sha256(files.encode()).hexdigest(),
        tokenizer=_tokenizer(checkpoint),
        conversion=conversion,
        kv_dtype=shape.dtype,
        block_size=shape.block_size,
        block_bytes=shape.block_bytes,
        kv=f"{shape.num_layers} layers, {shape.num_kv_heads} heads of {shape.head_dim}",
        ops=f"{ops.name} {version} {_build(ops)}",
    )


def _tokenizer(checkpoint: Checkpoint) -> str:
    digest = hashlib.sha256()
    for key, value in sorted((checkpoint.gguf_metadata or {}).items()):
        if key.startswith("tokenizer.") and key != "tokenizer.chat_template":
            digest.update(f"{key} {value!r}\n".encode(errors="surrogatepass"))
    if checkpoint.directory is not None:
        for name in _TOKENIZER_FILES:
            path = checkpoint.directory / name
            if path.is_file():
                digest.update(name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _build(ops: Ops) -> str:
    """The code that computes: the compiled kernels, or numpy."""
    if ops.name == "reference":
        import numpy as np

        return f"numpy {np.__version__}"
    from importlib.util import find_spec

    native = find_spec("octavo._native")
    if native is None or native.origin is None:
        return "unknown build"
    return hashlib.sha256(Path(native.origin).read_bytes()).hexdigest()[:16]

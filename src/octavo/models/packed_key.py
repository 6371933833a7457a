"""Which packed copy belongs to a checkpoint: everything that its bytes depend on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from octavo.config import ModelConfig
from octavo.models.cache import cache_dir
from octavo.models.checkpoint import Checkpoint
from octavo.models.packed_copy import PackedCopy
from octavo.models.packed_folder import PackedName
from octavo.ops.base import Ops, PackingOps


def packed_copy_of(
    checkpoint: Checkpoint, ops: Ops, config: ModelConfig, threads: int
) -> PackedCopy | None:
    """The copy of these weights in the user's cache; None on an op set that does not pack.

    It depends on the config's dtype and quantization. `threads` check it.
    """
    if not isinstance(ops, PackingOps):
        return None
    conversion = config.quantization or config.dtype
    layout = ops.packed_layout

    def key() -> str:
        from importlib.metadata import version

        return json.dumps(
            {
                "model": checkpoint.fingerprint,
                "files": state_of_files(checkpoint.path),
                "conversion": conversion,
                "numbers": None if conversion == "auto" else f"gguf {version('gguf')}",
                "layout": f"{layout} {sys.byteorder}",
            }
        )

    name = PackedName(str(checkpoint.path.resolve()), conversion)
    return PackedCopy(cache_dir() / "packed", name, key, threads)


def state_of_files(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of the files: the fingerprint looks at samples only."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    return [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]

"""A model on disk, whatever its layout: one spec, and tensors under one naming, memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from octavo.errors import MalformedModelError, ModelNotFoundError, UnsupportedModelError
from octavo.models import generation
from octavo.models.files import read_json
from octavo.models.formats import check_finite
from octavo.models.gguf_file import read_gguf
from octavo.models.gguf_names import rename_gguf, rope_factors
from octavo.models.names import EMBEDDING, HEAD, weight_shapes
from octavo.models.safetensors_file import read_safetensors_dir, require_float
from octavo.models.spec import ModelSpec
from octavo.models.spec_gguf import spec_from_gguf
from octavo.models.spec_hf import spec_from_hf
from octavo.ops.base import WeightTensor

CONFIG = "config.json"
_SAMPLE_BYTES = 256


@dataclass(frozen=True)
class Checkpoint:
    """A model's spec and tensors, checked against each other.

    `path`: the directory or .gguf file. `directory`: where tokenizer.json and its like lie (None for GGUF, whose
    `gguf_metadata` has the tokenizer as plain Python values; None for a directory). `eos_token_ids` end a turn;
    `generation_config`: the author's sampling defaults (temperature, top_k, top_p, min_p, if given).
    Tensors bear Hugging Face's names (`octavo.models.names`), and are exactly those that the spec implies.
    """

    path: Path
    spec: ModelSpec
    tensors: Mapping[str, WeightTensor]
    directory: Path | None
    gguf_metadata: Mapping[str, Any] | None
    eos_token_ids: tuple[int, ...]
    generation_config: Mapping[str, float]
    _checked: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def has(self, name: str) -> bool:
        """True if there is a tensor of that name. A tied head counts as there."""
        return name in self.tensors or (name == HEAD and self.spec.tied_embeddings)

    def tensor(self, name: str) -> WeightTensor:
        """The tensor of that name; for a tied head the embedding table. All its numbers are finite.

        Raises MalformedModelError if there is none (ask `has` first for optional ones), or if it has NaN or
        infinite numbers: checked here, the first time, because whoever asks is about to read it all.
        """
        weight = self.peek(name)
        if weight.name not in self._checked:
            check_finite(weight, str(self.path))
            self._checked.add(weight.name)
        return weight

    def peek(self, name: str) -> WeightTensor:
        """As `tensor`, but its numbers are not looked at."""
        if name == HEAD and self.spec.tied_embeddings:
            name = EMBEDDING
        weight = self.tensors.get(name)
        if weight is None:
            raise MalformedModelError(f"{self.path}: tensor {name!r} is missing")
        return weight

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all tensors in the file."""
        return sum(w.data.nbytes for w in self.tensors.values())

    @cached_property
    def fingerprint(self) -> str:
        """sha256, hex, that tells models apart: the spec, and each tensor's name, type, shape and a sample.

        The sample is its first, middle and last bytes: cheap, the same wherever the files lie, and different for any
        retrained or requantised model, though not for one whose author changed single weights by hand.
        """
        digest = hashlib.sha256(repr(self.spec).encode())
        for name in sorted(self.tensors):
            weight = self.tensors[name]
            flat = weight.data.reshape(-1)
            digest.update(f"\n{name} {weight.type} {weight.shape} {flat.size}\n".encode())
            for start in (0, flat.size // 2, max(0, flat.size - _SAMPLE_BYTES)):
                digest.update(flat[start : start + _SAMPLE_BYTES].tobytes())
        return digest.hexdigest()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a directory in Hugging Face's layout, a .gguf file, or a directory that holds just one.

    No weight is copied. Raises ModelNotFoundError, UnsupportedModelError or MalformedModelError; their messages
    name the file and the setting, tensor or offset. Weights are read when `Checkpoint.tensor` gives them out.
    """
    if path.is_file():
        return _open_file(path)
    if not path.is_dir():
        raise ModelNotFoundError(
            f"{path}: expected a model directory or a .gguf file, found nothing"
        )
    gguf_files = sorted(path.glob("*.gguf"))
    has_safetensors = any(path.glob("*.safetensors"))
    if not gguf_files or (has_safetensors and (path / CONFIG).is_file()):
        return _open_directory(path)
    if len(gguf_files) > 1:
        raise ModelNotFoundError(
            f"{path}: expected one .gguf file, found {len(gguf_files)}; name one of them: "
            f"{', '.join(f.name for f in gguf_files[:10])}"
        )
    return _open_file(gguf_files[0])


def _open_file(path: Path) -> Checkpoint:
    if path.suffix in (".bin", ".pt", ".pth", ".safetensors"):
        raise UnsupportedModelError(
            f"{path}: expected a .gguf file, or the directory with {CONFIG} and *.safetensors; "
            "weights alone do not say what the model is"
        )
    file = read_gguf(path)
    source = str(path)
    tensors = rename_gguf(file.tensors, source)
    if EMBEDDING not in tensors or len(tensors[EMBEDDING].shape) != 2:
        raise MalformedModelError(f"{source}: expected a matrix 'token_embd.weight', found none")
    spec = spec_from_gguf(
        file.metadata,
        source,
        file.tensors.keys(),
        tensors[EMBEDDING].shape[0],
        rope_factors(file.tensors, source),
    )
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > spec.vocab_size:
        raise MalformedModelError(
            f"{source}: tokenizer.ggml.tokens: expected at most {spec.vocab_size} tokens, as many as the rows "
            f"of token_embd.weight, got {len(tokens)}"
        )
    return Checkpoint(
        path=path,
        spec=spec,
        tensors=_check_tensors(tensors, spec, source),
        directory=None,
        gguf_metadata=file.metadata,
        eos_token_ids=generation.eos_from_gguf(file.metadata, spec.vocab_size, source),
        generation_config=generation.defaults_from_gguf(file.metadata, source),
    )


def _open_directory(path: Path) -> Checkpoint:
    if not (path / CONFIG).is_file():
        raise ModelNotFoundError(
            f"{path}: expected {CONFIG} with *.safetensors beside it, or one .gguf file, found neither"
        )
    config = read_json(path / CONFIG)
    spec = spec_from_hf(config, str(path / CONFIG))
    tensors = read_safetensors_dir(path)
    wanted = _check_tensors(tensors, spec, str(path))
    for weight in wanted.values():
        require_float(weight, str(path))
    generation_path = path / "generation_config.json"
    settings = read_json(generation_path) if generation_path.is_file() else {}
    return Checkpoint(
        path=path,
        spec=spec,
        tensors=wanted,
        directory=path,
        gguf_metadata=None,
        eos_token_ids=generation.eos_from_hf(config, settings, spec.vocab_size, str(path)),
        generation_config=generation.defaults_from_hf(settings, str(generation_path)),
    )


def _check_tensors(
    found: Mapping[str, WeightTensor], spec: ModelSpec, source: str
) -> dict[str, WeightTensor]:
    """The tensors that the spec implies, each present and of its shape; a part too many is refused.

    To leave out a bias or norm that the file has would give wrong answers in silence.
    """
    wanted: dict[str, WeightTensor] = {}
    shapes = weight_shapes(spec)
    for name, shape in shapes.items():
        weight = found.get(name)
        if weight is None:
            raise MalformedModelError(
                f"{source}: tensor {name!r} is missing; the file is incomplete, or its settings "
                "belong to another model"
            )
        if weight.shape != shape:
            raise MalformedModelError(
                f"{source}: tensor {weight.name!r}: expected shape {list(shape)}, got {list(weight.shape)}"
            )
        wanted[name] = weight
    for name in found.keys() - shapes.keys():
        ignored = name.endswith("rotary_emb.inv_freq") or (name == HEAD and spec.tied_embeddings)
        if name.startswith(("model.", "lm_head.")) and not ignored:
            raise UnsupportedModelError(
                f"{source}: tensor {found[name].name!r} has no place in {spec.architecture} with these "
                "settings; the model is a variant that Octavo does not know"
            )
    return wanted

"""A checkpoint and an op set -> a model that runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from octavo.errors import ConfigError
from octavo.models.convert import TensorSource, conversions
from octavo.models.decoder import Model
from octavo.models.layer_weights import LayerWeights
from octavo.models.names import EMBEDDING, FINAL_NORM, HEAD
from octavo.models.packed_copy import PackedCopy
from octavo.models.prepare import Preparer
from octavo.models.registry import layer_loader
from octavo.models.rope import rope_table
from octavo.models.spec import ModelSpec
from octavo.ops.base import Ops

Progress = Callable[[int, int], None]
"""Called with (parts loaded, parts in all) as loading goes on."""


class Loadable(TensorSource, Protocol):
    """A checkpoint: what the model is, and its tensors."""

    @property
    def spec(self) -> ModelSpec:
        """Sizes and optional parts."""
        ...


def check_max_model_len(spec: ModelSpec, max_model_len: int) -> None:
    """Raise ConfigError, with both numbers, if the model cannot run sequences of that length."""
    if max_model_len <= spec.max_position:
        return
    raise ConfigError(
        f"--max-model-len: expected at most {spec.max_position} tokens (the model's context length), "
        f"got {max_model_len}",
        "max_model_len",
    )


def load_model(
    checkpoint: Loadable,
    ops: Ops,
    *,
    dtype: str = "auto",
    quantization: str | None = None,
    max_model_len: int,
    progress: Progress | None = None,
    packed: PackedCopy | None = None,
) -> Model:
    """Prepare every weight on `ops`. `max_model_len`: longest sequence, in tokens.

    dtype, quantization: see `octavo.models.convert.conversions`. packed: a copy on disk of weights that were
    prepared before; what it has is used in place of the checkpoint's, and it is written if that saves time.
    Raises ConfigError (a length or setting that cannot be), UnsupportedModelError, MalformedModelError.
    """
    started = time.thread_time()  # waiting for a disk does not count
    spec = checkpoint.spec
    check_max_model_len(spec, max_model_len)
    load_layer = layer_loader(spec.family)
    convert = conversions(checkpoint, dtype, quantization)
    prepare = Preparer(checkpoint, ops, packed)
    layers = []
    for index in range(spec.num_layers):
        weights = LayerWeights(prepare, convert.layer, f"model.layers.{index}.")
        layers.append(load_layer(spec, weights))
        if progress is not None:
            progress(index + 1, spec.num_layers + 1)
    model = Model(
        spec=spec,
        ops=ops,
        max_len=max_model_len,
        embedding=prepare.table(EMBEDDING, convert.vocab),
        layers=tuple(layers),
        norm=prepare.vector(FINAL_NORM),
        head=prepare.linear([HEAD], convert.vocab),
        rope=rope_table(spec.rope, max_model_len),
    )
    if packed is not None:
        packed.finish(time.thread_time() - started)
    if progress is not None:
        progress(spec.num_layers + 1, spec.num_layers + 1)
    return model

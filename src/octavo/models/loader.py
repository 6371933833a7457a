"""A checkpoint and an op set -> a model that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from octavo.errors import ConfigError
from octavo.models.decoder import Model
from octavo.models.layer_weights import Convert, TensorSource, Weights
from octavo.models.registry import layer_loader
from octavo.models.rope import rope_table
from octavo.models.spec import ModelSpec
from octavo.ops.base import Ops, WeightTensor
from octavo.ops.formats import FLOAT_FORMATS, dequantize, from_float32, quantize

QUANTIZATIONS = {"q8": "Q8_0", "q4": "Q4_1"}
"""--quantization -> format of the layers' matrices; the embedding and the output matrix get Q8_0 either way."""

Progress = Callable[[int, int], None]
"""Called with (parts loaded, parts in all) as loading goes on."""


class Loadable(TensorSource, Protocol):
    """A checkpoint: what the model is, and its tensors."""

    @property
    def spec(self) -> ModelSpec:
        """Sizes and optional parts."""
        ...


def longest_context(spec: ModelSpec) -> int:
    """Tokens of the longest sequence that the model runs as it was made: within its window, if it has one.

    Windowed attention is not supported; up to the window's length it is plain causal attention.
    """
    return min(spec.max_position, spec.sliding_window or spec.max_position)


def check_max_model_len(spec: ModelSpec, max_model_len: int) -> None:
    """Raise ConfigError, with both numbers, if the model cannot run sequences of that length."""
    limit = longest_context(spec)
    if max_model_len <= limit:
        return
    reason = "the model's context length"
    if limit < spec.max_position:
        reason = "the model's sliding window, and windowed attention is not supported yet"
    raise ConfigError(
        f"--max-model-len: expected at most {limit} tokens ({reason}), got {max_model_len}",
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
) -> Model:
    """Prepare every weight on `ops`. `max_model_len`: longest sequence, in tokens.

    dtype: auto (as in the file) or float32 (dequantised). quantization: None, q8 or q4, for float weights.
    Raises ConfigError (settings that contradict each other or the file), UnsupportedModelError, MalformedModelError.
    """
    spec = checkpoint.spec
    check_max_model_len(spec, max_model_len)
    load_layer = layer_loader(spec.family)
    to_layer = _conversion(checkpoint, dtype, quantization, "q4" if quantization == "q4" else "q8")
    to_vocab = _conversion(checkpoint, dtype, quantization, "q8")
    layers = []
    total = spec.num_layers + 1
    vocab = Weights(checkpoint, spec, ops, to_vocab)
    embedding = vocab.table("model.embed_tokens.weight")
    head_name = "model.embed_tokens.weight" if spec.tied_embeddings else "lm_head.weight"
    head = vocab.head(head_name)
    for index in range(spec.num_layers):
        if progress is not None:
            progress(index + 1, total)
        layers.append(load_layer(Weights(checkpoint, spec, ops, to_layer).layer(index)))
    if progress is not None:
        progress(total, total)
    return Model(
        spec=spec,
        ops=ops,
        max_len=max_model_len,
        embedding=embedding,
        layers=tuple(layers),
        norm=vocab.vector("model.norm.weight", spec.hidden_size),
        head=head,
        rope=rope_table(spec.rope, max_model_len),
    )


def _conversion(checkpoint: Loadable, dtype: str, quantization: str | None, target: str) -> Convert:
    """What happens to a matrix between the file and the op set."""
    if quantization is None:
        return _keep if dtype == "auto" else _to_float32
    if dtype == "float32":
        raise ConfigError(
            f"--quantization {quantization} contradicts --dtype float32: give one of them",
            "quantization",
        )
    sample = checkpoint.tensor("model.layers.0.self_attn.q_proj.weight")
    if sample.type not in FLOAT_FORMATS:
        raise ConfigError(
            f"--quantization {quantization}: the weights of this model are quantised already "
            f"({sample.type}); leave the flag out",
            "quantization",
        )
    format = QUANTIZATIONS[target]

    def convert(weight: WeightTensor) -> WeightTensor:
        # A row that is not whole groups stays as it is, as does what is quantised already.
        if weight.type not in FLOAT_FORMATS or weight.shape[-1] % 32:
            return weight
        return quantize(weight, format)

    return convert


def _keep(weight: WeightTensor) -> WeightTensor:
    return weight


def _to_float32(weight: WeightTensor) -> WeightTensor:
    return from_float32(weight.name, dequantize(weight))

"""What becomes of a matrix between its file and the op set: nothing, float32, or fewer bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from octavo.errors import ConfigError
from octavo.ops.base import Ops, WeightTensor
from octavo.ops.formats import FLOAT_FORMATS, dequantize, from_float32

_SAMPLE = "model.layers.0.self_attn.q_proj.weight"
_GROUP = 32


class TensorSource(Protocol):
    """What is needed of a checkpoint, which has checked names and shapes of its tensors."""

    def tensor(self, name: str) -> WeightTensor:
        """The tensor of that Hugging Face name, its numbers finite; else MalformedModelError."""
        ...

    def peek(self, name: str) -> WeightTensor:
        """The same, its numbers not looked at: to ask for shape and type."""
        ...


@dataclass(frozen=True, slots=True)
class Convert:
    """Matrices get the format `to`: None (their own), F32, or for floats a quantised one."""

    to: str | None = None

    def type_of(self, weight: WeightTensor) -> str:
        """The format that the matrix will have."""
        if self.to is None or self.to == "F32":
            return self.to or weight.type
        if weight.type not in FLOAT_FORMATS or weight.shape[-1] % _GROUP:
            return weight.type
        return self.to

    def __call__(self, weight: WeightTensor, ops: Ops) -> WeightTensor:
        """The matrix in that format; itself if it has it."""
        wanted = self.type_of(weight)
        if wanted == weight.type:
            return weight
        if wanted == "F32":
            return from_float32(weight.name, dequantize(weight))
        return ops.quantize(weight, wanted)


@dataclass(frozen=True, slots=True)
class Conversions:
    """For the matrices of the layers, and for the embedding table and the output matrix."""

    layer: Convert
    vocab: Convert


def conversions(source: TensorSource, dtype: str, quantization: str | None) -> Conversions:
    """The conversions that --dtype (auto, float32) and --quantization (None, q8, q4) ask for.

    q8 is GGUF's Q8_0. q4 is Q4_1 for the layers; embedding and output matrix, which are few and
    matter more, get Q8_0. A row that is not whole groups of 32 stays as it is. Raises ConfigError
    if the settings contradict each other, or if the weights are quantised already.
    """
    if quantization is None:
        convert = Convert("F32" if dtype == "float32" else None)
        return Conversions(convert, convert)
    if dtype == "float32":
        raise ConfigError(
            f"--quantization {quantization} contradicts --dtype float32: give one of them",
            "quantization",
        )
    found = source.peek(_SAMPLE).type
    if found not in FLOAT_FORMATS:
        raise ConfigError(
            f"--quantization {quantization}: expected weights in {', '.join(FLOAT_FORMATS)}, "
            f"got {found}, which is quantised already; leave the flag out",
            "quantization",
        )
    return Conversions(Convert("Q4_1" if quantization == "q4" else "Q8_0"), Convert("Q8_0"))

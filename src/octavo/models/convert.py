"""What becomes of a matrix between its file and the op set: nothing, float32, or fewer bits."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.models.layer_weights import Convert, TensorSource
from octavo.ops.base import WeightTensor
from octavo.ops.formats import FLOAT_FORMATS, dequantize, from_float32, quantize

_SAMPLE = "model.layers.0.self_attn.q_proj.weight"
_GROUP = 32


@dataclass(frozen=True, slots=True)
class Conversions:
    """For the matrices of the layers, and for the embedding table and the output matrix."""

    layer: Convert
    vocab: Convert


def conversions(source: TensorSource, dtype: str, quantization: str | None) -> Conversions:
    """The conversions that --dtype (auto, float32) and --quantization (None, q8, q4) ask for.

    q8 is GGUF's Q8_0. q4 is Q4_1 for the layers; embedding and output matrix, which are few and matter more, get
    Q8_0. A row that is not whole groups of 32 stays as it is. Raises ConfigError if the settings contradict each other,
    or if the weights are quantised already.
    """
    if quantization is None:
        convert = _to_float32 if dtype == "float32" else _keep
        return Conversions(convert, convert)
    if dtype == "float32":
        raise ConfigError(
            f"--quantization {quantization} contradicts --dtype float32: give one of them",
            "quantization",
        )
    found = source.tensor(_SAMPLE).type
    if found not in FLOAT_FORMATS:
        raise ConfigError(
            f"--quantization {quantization}: expected weights in {', '.join(FLOAT_FORMATS)}, got {found}, "
            "which is quantised already; leave the flag out",
            "quantization",
        )
    return Conversions(_to("Q4_1" if quantization == "q4" else "Q8_0"), _to("Q8_0"))


def _keep(weight: WeightTensor) -> WeightTensor:
    return weight


def _to_float32(weight: WeightTensor) -> WeightTensor:
    return from_float32(weight.name, dequantize(weight))


def _to(format: str) -> Convert:
    def convert(weight: WeightTensor) -> WeightTensor:
        if weight.type not in FLOAT_FORMATS or weight.shape[-1] % _GROUP:
            return weight
        return quantize(weight, format)

    return convert

"""From a checkpoint's tensors to weights that an op set has prepared: shapes checked, formats converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from octavo.errors import MalformedModelError
from octavo.models.decoder import Linear
from octavo.models.spec import ModelSpec
from octavo.ops.base import F32, Ops, WeightTensor

Convert = Callable[[WeightTensor], WeightTensor]


class TensorSource(Protocol):
    """What is needed of a checkpoint: tensors by their Hugging Face names."""

    def tensor(self, name: str) -> WeightTensor:
        """The tensor; MalformedModelError if there is none of that name."""
        ...


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors whose names start with `prefix`. `convert` may change the format of a matrix before it is prepared."""

    source: TensorSource
    spec: ModelSpec
    ops: Ops
    convert: Convert
    prefix: str = ""

    def layer(self, index: int) -> Weights:
        """The tensors of one decoder layer."""
        prefix = f"model.layers.{index}."
        return Weights(self.source, self.spec, self.ops, self.convert, prefix)

    def vector(self, name: str, size: int) -> F32:
        """A norm weight or a bias, float32 [size]."""
        return self.ops.prepare_vector(self.tensor(name, (size,)))

    def linear(self, *maps: tuple[str, int, int], bias: bool = False) -> Linear:
        """Maps (name without .weight, outputs, inputs) stacked over their outputs, with their biases or none."""
        matrices = [self.tensor(f"{name}.weight", (n, k)) for name, n, k in maps]
        weight = self.ops.prepare_linear([self.convert(m) for m in matrices])
        if not bias:
            return Linear(weight)
        parts = [self.vector(f"{name}.bias", n) for name, n, _ in maps]
        return Linear(weight, _join(parts))

    def qkv(self, *, bias: bool) -> Linear:
        """q_proj, k_proj and v_proj as one."""
        spec = self.spec
        return self.linear(
            ("self_attn.q_proj", spec.q_size, spec.hidden_size),
            ("self_attn.k_proj", spec.kv_size, spec.hidden_size),
            ("self_attn.v_proj", spec.kv_size, spec.hidden_size),
            bias=bias,
        )

    def output(self, *, bias: bool) -> Linear:
        """o_proj."""
        spec = self.spec
        return self.linear(("self_attn.o_proj", spec.hidden_size, spec.q_size), bias=bias)

    def gate_up(self, *, bias: bool) -> Linear:
        """gate_proj and up_proj as one."""
        spec = self.spec
        return self.linear(
            ("mlp.gate_proj", spec.intermediate_size, spec.hidden_size),
            ("mlp.up_proj", spec.intermediate_size, spec.hidden_size),
            bias=bias,
        )

    def down(self, *, bias: bool) -> Linear:
        """down_proj."""
        spec = self.spec
        return self.linear(("mlp.down_proj", spec.hidden_size, spec.intermediate_size), bias=bias)

    def table(self, name: str) -> Any:
        """An embedding table [V, H]."""
        return self.ops.prepare_table(self.convert(self.tensor(name, self._vocab_shape)))

    def head(self, name: str) -> Any:
        """The output matrix [V, H]."""
        return self.ops.prepare_linear([self.convert(self.tensor(name, self._vocab_shape))])

    def tensor(self, name: str, shape: tuple[int, ...]) -> WeightTensor:
        """The tensor prefix + name; MalformedModelError unless it has the shape."""
        weight = self.source.tensor(self.prefix + name)
        if weight.shape != shape:
            raise MalformedModelError(
                f"tensor {weight.name}: expected shape {list(shape)} from the model's settings, "
                f"got {list(weight.shape)}"
            )
        return weight

    @property
    def _vocab_shape(self) -> tuple[int, int]:
        return self.spec.vocab_size, self.spec.hidden_size


def _join(parts: list[F32]) -> F32:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)

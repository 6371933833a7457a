"""From a checkpoint's tensors to weights that an op set has prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from octavo.models.decoder import Linear
from octavo.ops.base import F32, Ops, WeightTensor

Convert = Callable[[WeightTensor], WeightTensor]


class TensorSource(Protocol):
    """What is needed of a checkpoint, which has checked that all tensors are there and of the right shapes."""

    def tensor(self, name: str) -> WeightTensor:
        """The tensor of that Hugging Face name, its numbers finite; else MalformedModelError."""
        ...


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The tensors whose names start with `prefix`; `convert` may change the format of a matrix."""

    source: TensorSource
    ops: Ops
    convert: Convert
    prefix: str

    def vector(self, name: str) -> F32:
        """A norm weight or a bias, float32."""
        return self.ops.prepare_vector(self.source.tensor(self.prefix + name))

    def linear(self, *names: str, bias: bool) -> Linear:
        """The maps of those names (without .weight), stacked over their outputs, with their biases or none."""
        matrices = [self.source.tensor(f"{self.prefix}{name}.weight") for name in names]
        weight = self.ops.prepare_linear([self.convert(m) for m in matrices])
        if not bias:
            return Linear(weight)
        return Linear(weight, np.concatenate([self.vector(f"{name}.bias") for name in names]))

    def qkv(self, *, bias: bool) -> Linear:
        """q_proj, k_proj and v_proj as one."""
        return self.linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=bias)

    def gate_up(self, *, bias: bool) -> Linear:
        """gate_proj and up_proj as one."""
        return self.linear("mlp.gate_proj", "mlp.up_proj", bias=bias)

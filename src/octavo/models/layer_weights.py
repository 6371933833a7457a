"""From a checkpoint's tensors to weights that an op set has prepared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.models.convert import Convert
from octavo.models.decoder import Linear
from octavo.models.prepare import Preparer
from octavo.ops.base import F32


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The tensors whose names start with `prefix`; `convert` may change the format of a matrix."""

    prepare: Preparer
    convert: Convert
    prefix: str

    def vector(self, name: str) -> F32:
        """A norm weight or a bias, float32."""
        return self.prepare.vector(self.prefix + name)

    def linear(self, *names: str, bias: bool) -> Linear:
        """The maps of those names (without .weight), stacked over outputs; `bias`: theirs too."""
        matrices = [f"{self.prefix}{name}.weight" for name in names]
        weight = self.prepare.linear(matrices, self.convert)
        if not bias:
            return Linear(weight)
        return Linear(weight, np.concatenate([self.vector(f"{name}.bias") for name in names]))

    def qkv(self, *, bias: bool) -> Linear:
        """q_proj, k_proj and v_proj as one."""
        return self.linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=bias)

    def gate_up(self, *, bias: bool) -> Linear:
        """gate_proj and up_proj as one."""
        return self.linear("mlp.gate_proj", "mlp.up_proj", bias=bias)

"""Shapes of the models that kernels are measured on: sizes alone, no weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only model."""

    name: str
    num_layers: int
    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int

    def linears(self) -> dict[str, tuple[int, int]]:
        """Name -> (outputs, inputs) of each linear map of a layer, stacked as models/ does; and the
        output matrix."""
        qkv = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        return {
            "qkv": (qkv, self.hidden),
            "o": (self.hidden, self.num_heads * self.head_dim),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
            "head": (self.vocab_size, self.hidden),
        }


SHAPES = {
    shape.name: shape
    for shape in (
        ModelShape("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152),
        ModelShape("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256),
        ModelShape("qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 128, 151936),
        ModelShape("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256),
    )
}

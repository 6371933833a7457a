"""The decoder that all families share: pre-norm attention and gated MLP, with the parts that some leave out.

A family file builds the layers (which tensors, stacked how); the arithmetic is written here once, against ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from octavo.models.spec import ModelSpec
from octavo.ops.base import F32, TILE, AttentionShape, Batch, Ops, Rope


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map as the op set prepared it, and its bias, float32 [outputs], if it has one."""

    weight: Any
    bias: F32 | None = None

    def __call__(self, ops: Ops, x: F32) -> F32:
        """[T, inputs] -> [T, outputs]."""
        return ops.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """Weights of one layer. qkv gives q, k and v side by side, gate_up the gate and up halves.

    q_norm, k_norm: RMSNorm weights [D] of each head before the rotation, or None.
    """

    attention_norm: F32
    qkv: Linear
    o: Linear
    mlp_norm: F32
    gate_up: Linear
    down: Linear
    q_norm: F32 | None = None
    k_norm: F32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A loaded model; `ops` is the device that it runs on, `max_len` the positions that `rope` covers."""

    spec: ModelSpec
    ops: Ops
    max_len: int
    embedding: Any
    layers: tuple[DecoderLayer, ...]
    norm: F32
    head: Any
    rope: Rope
    hidden: Callable[[Batch], F32] = field(init=False, repr=False, compare=False)
    """Run a step as `forward` does, up to the last norm: float32 [R, H]. `decode` on the model's ops."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", self.ops.compile(self.decode))

    def kv_shape(self, num_tiles: int) -> tuple[int, int, int, int, int]:
        """Shape of the KV storage for so many tiles of 16 tokens; see `octavo.ops.base.Batch`."""
        spec = self.spec
        return num_tiles, spec.num_layers, 2, spec.num_kv_heads, spec.head_dim * TILE

    def attention_shape(self, layer: int) -> AttentionShape:
        """Heads and window of a layer, and the usual scale 1/sqrt(D)."""
        s = self.spec
        heads = s.num_heads, s.num_kv_heads, s.head_dim
        return AttentionShape(*heads, scale=s.head_dim**-0.5, window=s.window_of(layer))

    def forward(self, batch: Batch) -> F32:
        """Run a step: writes the keys and values of its rows to batch.kv; float32 logits [R, V].

        R rows are given logits: those of batch.logits_rows, in that order.
        """
        return self.logits(self.hidden(batch))

    def decode(self, ops: Ops, batch: Batch) -> F32:
        """The arithmetic of a step up to the last norm, on any ops: float32 [R, H]."""
        eps = self.spec.rms_eps
        residual = ops.embedding(self.embedding, batch.token_ids)
        x = None
        for index, layer in enumerate(self.layers):
            x = _norm(ops, x, layer.attention_norm, eps, residual)
            shape = self.attention_shape(index)
            x = _attention(ops, layer, index, x, batch, shape, self.rope, eps)
            if (
                index == len(self.layers) - 1
            ):  # other rows are done: their keys and values were the point
                x = ops.take_rows(x, batch.logits_rows)
                residual = ops.take_rows(residual, batch.logits_rows)
            x = ops.rms_norm(layer.o(ops, x), layer.mlp_norm, eps, residual)
            x = layer.down(ops, ops.silu_mul(layer.gate_up(ops, x)))
        return _norm(ops, x, self.norm, eps, residual)

    def logits(self, hidden: F32) -> F32:
        """Rows of `hidden` [R, H] -> float32 logits [R, V]; each depends on its own row alone."""
        return self.ops.linear(hidden, self.head)


def _norm(ops: Ops, x: F32 | None, weight: F32, eps: float, residual: F32) -> F32:
    """The norm that follows a layer: adds its output x to the residual; the first layer has none before it."""
    if x is None:
        return ops.rms_norm(residual, weight, eps)
    return ops.rms_norm(x, weight, eps, residual)


def _attention(
    ops: Ops,
    layer: DecoderLayer,
    index: int,
    x: F32,
    batch: Batch,
    shape: AttentionShape,
    rope: Rope,
    eps: float,
) -> F32:
    qkv = layer.qkv(ops, x)
    q = ops.rope_and_store(qkv, index, batch, shape, rope, layer.q_norm, layer.k_norm, eps)
    return ops.paged_attention(q, index, batch, shape)

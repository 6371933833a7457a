"""What one device can do: the protocol that every op set implements, and the data it works on.

A model file calls these ops on arrays and never names a device. Shapes: T rows (tokens of all sequences
of the step, one after the other), H hidden, Hq query heads, Hkv key/value heads, D head size.
Activations are float32.

The exactness contract: every output row is a function of its own inputs alone. It may not depend on how
many rows there are, on their order, on the number of threads, or on the block ids; sums run in one fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
AnyArray = npt.NDArray[Any]

TILE = 16
"""Tokens in a KV tile, the unit of the attention kernels. A KV block is one tile or a few in a row."""


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """A tensor as it lies in its file.

    `shape` is row-major: (out, in) for a matrix, (n,) for a vector. `type` is GGUF's name of the format (F32 F16
    BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K). `data`: uint8, [out, bytes of a row] (one row for a
    vector), usually memory-mapped.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position table. cos, sin: float32 [max positions, R/2], the first R dimensions of a head turn.

    `interleaved`: pairs are (2i, 2i+1) (GGUF's llama layout); else (i, i + R/2) (Hugging Face's).
    """

    cos: F32
    sin: F32
    interleaved: bool


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads of an attention layer; `scale` multiplies the scores (1/sqrt(D) as a rule).

    `window`: a query at position p sees the keys of positions p - window + 1 .. p; with None, all up to p.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None


@dataclass(slots=True)
class AttentionInputs:
    """Which rows attend to which tiles; S sequences.

    row_starts int32 [S+1]: rows of sequence s are row_starts[s] .. row_starts[s+1].
    context_lens int32 [S]: tokens of s after this step; its last row is at position context_lens[s] - 1.
    tiles int32 [sum over s of ceil(context_lens[s] / 16)], tile_starts int32 [S+1]: the tiles of s, in order, one for
    each 16 positions from position 0 on.

    A layer with a window reads no tile that lies wholly before the window of the sequence's first row: positions below
    context_lens[s] - rows of s - window + 1. If all layers have windows, an entry of `tiles` that lies wholly before the
    longest of them may be the id of any tile of the KV memory, such as 0 or one that has got other contents since.
    """

    row_starts: I32
    context_lens: I32
    tiles: I32
    tile_starts: I32


@dataclass(slots=True)
class Batch:
    """One step's input to a model.

    token_ids, positions, slots: int32 [T]; slot = tile * 16 + offset, where the row's key and value go.
    attention: what `Ops.plan_attention` made of the step, once. logits_rows: int32 [R], the rows to give logits for.
    kv: the whole KV storage, float16 or float32, [tiles, layers, 2, Hkv, D * 16]: keys ([..., 0, :, :]) are
    dimension-major inside a tile (D x 16 tokens), values ([..., 1, :, :]) token-major (16 x D). A tile is contiguous.
    """

    token_ids: I32
    positions: I32
    slots: I32
    attention: Any
    logits_rows: I32
    kv: AnyArray


Forward = Callable[["Ops", Batch], F32]
"""A forward pass, written against ops: from the rows of a batch to something for its logits_rows, [R, width]."""


class Ops(Protocol):
    """One device. `Linear`, `Table` and the attention plan are opaque to callers."""

    name: str

    def quantize(self, weight: WeightTensor, format: str) -> WeightTensor:
        """A float matrix in Q8_0 or Q4_1; its rows are whole groups of 32. The same bytes from every op set."""
        ...

    def prepare_linear(self, parts: Sequence[WeightTensor]) -> Any:
        """Matrices [n_i, K] stacked over their rows -> one linear map to sum(n_i) outputs; types may differ."""
        ...

    def prepare_table(self, weight: WeightTensor) -> Any:
        """An embedding table [V, H] to look rows up in."""
        ...

    def prepare_vector(self, weight: WeightTensor) -> F32:
        """A vector (norm weight, bias) as float32 [n]."""
        ...

    def plan_attention(self, inputs: AttentionInputs) -> Any:
        """Once a step: whatever `paged_attention` needs for all layers."""
        ...

    def embedding(self, table: Any, token_ids: I32) -> F32:
        """int32 [T] -> [T, H]."""
        ...

    def rms_norm(self, x: F32, weight: F32, eps: float, residual: F32 | None = None) -> F32:
        """RMSNorm of each row of x [T, H]. With `residual` [T, H]: residual += x in place, then the norm of that."""
        ...

    def linear(self, x: F32, weight: Any, bias: F32 | None = None) -> F32:
        """x [T, K] -> [T, N]."""
        ...

    def rope_and_store(
        self,
        qkv: F32,
        layer: int,
        batch: Batch,
        shape: AttentionShape,
        rope: Rope,
        q_norm: F32 | None = None,
        k_norm: F32 | None = None,
        eps: float = 0.0,
    ) -> F32:
        """qkv [T, (Hq + 2 Hkv) * D] -> rotated queries [T, Hq * D]; rotated keys, and values, go to batch.kv.

        q_norm, k_norm [D]: RMSNorm of each head before the rotation (Qwen3). Values that float16 cannot hold
        are clamped to its range, so that one request's numbers never turn into infinities in shared memory.
        """
        ...

    def paged_attention(self, q: F32, layer: int, batch: Batch, shape: AttentionShape) -> F32:
        """Causal attention of q [T, Hq * D] over the tiles of batch.attention, within shape.window -> [T, Hq * D]."""
        ...

    def silu_mul(self, gate_up: F32) -> F32:
        """[T, 2 I] -> silu(first half) * second half, [T, I]."""
        ...

    def take_rows(self, x: F32, rows: I32) -> F32:
        """x [T, n], rows int32 [R] -> [R, n]: a copy of those rows, in that order."""
        ...

    def argmax(self, x: F32) -> list[int]:
        """x [R, V] -> for each row the column of its largest number, the lowest of equals.

        -1 for a row whose largest number is infinite, or that holds a NaN: there is nothing to choose.
        """
        ...

    def compile(self, forward: Forward) -> Callable[[Batch], F32]:
        """`forward` on this device, to be called for each step; its results have the same bits as those of the ops.

        A device may call `forward` right away, once, with ops and a batch that hold no numbers, and keep what
        it did. So `forward` uses arrays only through ops, and what it does may not depend on a batch.
        """
        ...

    def copy_tiles(self, kv: AnyArray, src: I32, dst: I32) -> None:
        """kv[dst[i]] = kv[src[i]] for each i, in order, as bytes."""
        ...


@runtime_checkable
class PackingOps(Ops, Protocol):
    """An op set whose linear maps are blocks of memory, which another process can use as they are.

    `packed_layout` names the layout of that memory: equal names, equal bytes for equal weights.
    """

    packed_layout: str

    def packed_bytes(self, linear: Any) -> npt.NDArray[np.uint8]:
        """The memory of what `prepare_linear` made, uint8 [bytes], read-only."""
        ...

    def linear_from_packed(
        self, matrices: Sequence[tuple[str, int]], width: int, data: npt.NDArray[np.uint8]
    ) -> Any:
        """The linear map of that memory, used in place. matrices: (type, outputs) each, [outputs, width]."""
        ...

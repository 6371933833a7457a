"""The CPU op set: the protocol of `ops.base` on the native kernels in csrc/.

Importing this module fails with ImportError where the kernels were not built; `ops.select` handles that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.ops.base import (
    F32,
    I32,
    AnyArray,
    AttentionInputs,
    AttentionShape,
    Batch,
    Forward,
    Rope,
    WeightTensor,
)
from octavo.ops.cpu_program import Program


def _rows_of_bytes(weight: WeightTensor) -> npt.NDArray[np.uint8]:
    """The data of a matrix [n, K] or vector [K], checked, as [n or 1, bytes of a row]."""
    *rows, num_columns = weight.shape
    try:
        size = _native.row_bytes(weight.type, num_columns)
    except ValueError as e:
        raise UnsupportedModelError(f"tensor {weight.name}: {e}") from None
    num_rows = math.prod(rows)
    if weight.data.nbytes != num_rows * size:
        raise MalformedModelError(
            f"tensor {weight.name}: expected {num_rows * size} bytes for {weight.type} of shape "
            f"{list(weight.shape)}, got {weight.data.nbytes}"
        )
    return np.ascontiguousarray(weight.data).reshape(num_rows, size)


def _describe(array: object) -> str:
    """dtype and shape, for messages."""
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    order = "" if array.flags.c_contiguous else ", not C-contiguous"
    return f"{array.dtype} {list(array.shape)}{order}"


class _Table:
    """An embedding table [V, H] in its file's bytes."""

    def __init__(self, weight: WeightTensor) -> None:
        self.rows = _rows_of_bytes(weight)
        self.type = weight.type
        self.num_columns = weight.shape[-1]  # a vector is one row


class CpuOps:
    """`Ops` on the CPU.

    `threads` includes the calling one. `isa`: portable, avx2, avx512 or avx512bf16; "" takes OCTAVO_ISA, else the
    best that the machine has (ValueError for one it lacks). Arrays are C-contiguous float32.
    """

    def __init__(self, threads: int, isa: str = "") -> None:
        self._context = _native.Context(threads, isa)
        self.name = f"cpu-{self._context.isa}"
        self.rounds_attention = self._context.isa == "avx512bf16"  # over float16 memory
        self.packed_layout = f"cpu-{_native.PACKED_LAYOUT}"  # the same for every instruction set

    # ---- linear and embedding

    def prepare_linear(self, parts: Sequence[WeightTensor]) -> _native.Linear:
        """Matrices [n_i, K], packed. Raises MalformedModelError for weights that are not finite."""
        widths = {p.shape[-1] for p in parts}
        if len(widths) != 1:
            named = ", ".join(f"{p.name} {list(p.shape)}" for p in parts)
            raise ValueError(
                f"prepare_linear: expected matrices of one width, got {named or 'none'}"
            )
        rows = [(p.name, p.type, _rows_of_bytes(p)) for p in parts]
        try:
            return _native.make_linear(self._context, rows, widths.pop())
        except ValueError as e:
            raise MalformedModelError(str(e)) from None

    def quantize(self, weight: WeightTensor, format: str) -> WeightTensor:
        """A float matrix in Q8_0 or Q4_1, on all threads: the bytes that gguf's quantiser gives."""
        rows, width = _rows_of_bytes(weight), weight.shape[-1]
        out = np.empty((len(rows), _native.row_bytes(format, width)), np.uint8)
        _native.quantize(self._context, weight.type, rows, format, width, out)
        return WeightTensor(weight.name, weight.shape, format, out)

    def packed_bytes(self, linear: _native.Linear) -> npt.NDArray[np.uint8]:
        """See `PackingOps.packed_bytes`."""
        return linear.packed

    def linear_from_packed(
        self, matrices: Sequence[tuple[str, int]], width: int, data: npt.NDArray[np.uint8]
    ) -> _native.Linear:
        """See `PackingOps.linear_from_packed`. ValueError for data of another size, or not aligned to 64 bytes."""
        return _native.linear_from_packed(list(matrices), width, data)

    def linear(self, x: F32, weight: _native.Linear, bias: F32 | None = None) -> F32:
        """x [T, K] -> [T, N]. Raises ValueError for arrays of another dtype, shape or memory order."""
        out = np.empty((x.shape[0], weight.num_outputs), np.float32)
        try:
            _native.linear(self._context, weight, x, bias, out)
        except TypeError:
            raise ValueError(
                f"linear: expected x float32 [T, {weight.k}] and bias float32 [{weight.num_outputs}] or None, "
                f"C-contiguous; got x {_describe(x)}, bias {_describe(bias)}"
            ) from None
        return out

    def prepare_table(self, weight: WeightTensor) -> _Table:
        """[V, H], left in its format: rows become float32 when they are looked up."""
        return _Table(weight)

    def embedding(self, table: _Table, token_ids: I32) -> F32:
        """int32 [T] -> [T, H]. Raises IndexError for an id outside the table, ValueError for another dtype."""
        out = np.empty((len(token_ids), table.num_columns), np.float32)
        try:
            _native.embedding(self._context, table.type, table.rows, token_ids, out)
        except TypeError:
            raise ValueError(
                f"embedding: expected token_ids int32 [T], C-contiguous; got {_describe(token_ids)}"
            ) from None
        return out

    def prepare_vector(self, weight: WeightTensor) -> F32:
        """float32 [n]."""
        return self.embedding(_Table(weight), np.zeros(1, np.int32)).reshape(-1)

    # ---- norms, rope, attention, activation, block copy

    def plan_attention(self, inputs: AttentionInputs) -> _native.AttentionPlan:
        """The sequences of the step, checked; the work lists are made at the first layer and kept.

        ValueError unless the arrays fit together: rows and tiles in rising order, a tile for each 16 tokens.
        """
        return _native.AttentionPlan(
            inputs.row_starts, inputs.context_lens, inputs.tiles, inputs.tile_starts
        )

    def rms_norm(self, x: F32, weight: F32, eps: float, residual: F32 | None = None) -> F32:
        """See `Ops.rms_norm`."""
        out = np.empty_like(x)
        _native.rms_norm(self._context, x, weight, eps, residual, out)
        return out

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
        """See `Ops.rope_and_store`. ValueError for a position, slot or layer out of range; nothing is written then."""
        heads, kv_heads, dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
        out = np.empty((len(qkv), heads * dim), np.float32)
        _native.rope_and_store(
            self._context, qkv, batch.kv, layer, heads, kv_heads, dim, batch.positions, batch.slots,
            rope.cos, rope.sin, rope.interleaved, q_norm, k_norm, eps, out,
        )  # fmt: skip
        return out

    def paged_attention(self, q: F32, layer: int, batch: Batch, shape: AttentionShape) -> F32:
        """See `Ops.paged_attention`. Slots beyond a query's position are never read for it, whatever they hold."""
        out = np.empty_like(q)
        _native.paged_attention(
            self._context, batch.attention, batch.kv, layer,
            shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.scale, shape.window, q, out,
        )  # fmt: skip
        return out

    def silu_mul(self, gate_up: F32) -> F32:
        """See `Ops.silu_mul`."""
        out = np.empty((len(gate_up), gate_up.shape[-1] // 2), np.float32)
        _native.silu_mul(self._context, gate_up, out)
        return out

    def take_rows(self, x: F32, rows: I32) -> F32:
        """See `Ops.take_rows`."""
        return x[rows]

    def argmax(self, x: F32) -> list[int]:
        """See `Ops.argmax`."""
        return _native.argmax(self._context, x)

    def compile(self, forward: Forward) -> Callable[[Batch], F32]:
        """See `Ops.compile`: a step is one native call, with small ops folded into the large ones."""
        return Program(self._context, forward)

    def copy_tiles(self, kv: AnyArray, src: I32, dst: I32) -> None:
        """See `Ops.copy_tiles`."""
        _native.copy_tiles(self._context, kv, src, dst)

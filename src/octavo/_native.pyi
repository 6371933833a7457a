"""Octavo's CPU kernels (csrc/bindings.cpp). Arrays are C-contiguous, of exactly the dtype named, never converted."""

from typing import Any

import numpy as np
import numpy.typing as npt

_U8 = npt.NDArray[np.uint8]
_I32 = npt.NDArray[np.int32]
_F32 = npt.NDArray[np.float32]

class Context:
    """Threads and instruction set that kernel calls run with."""

    def __init__(self, threads: int, isa: str = "") -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

def best_isa() -> str: ...

class Linear:
    """Packed weights of a linear map [num_outputs, k]."""

    @property
    def k(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def packed(self) -> _U8:
        """Its memory [num_bytes], read-only: what `linear_from_packed` takes."""

PACKED_LAYOUT: int
"""Number of the layout that weights are packed in."""

def linear_from_packed(parts: list[tuple[str, int]], k: int, packed: _U8) -> Linear:
    """(GGUF type, outputs) each, and the memory of their packed weights [num_bytes], used in place and kept alive.

    ValueError if its size or its alignment (64 bytes) is wrong.
    """

def make_linear(context: Context, parts: list[tuple[str, str, _U8]], k: int) -> Linear:
    """(name, GGUF type, [n_i, bytes of a row of k weights]) each, stacked. ValueError for weights that are not finite."""

def linear(context: Context, weight: Linear, x: _F32, bias: _F32 | None, out: _F32) -> None:
    """x [T, k] -> out [T, num_outputs], bias [num_outputs]. TypeError for other dtypes, ValueError for other shapes."""

def quantize(context: Context, from_: str, data: _U8, to: str, k: int, out: _U8) -> None:
    """Rows of k floats (F32, F16, BF16) [n, bytes of a row] -> out [n, bytes of a row] in `to` (Q8_0, Q4_1)."""

def row_bytes(type: str, k: int) -> int:
    """Bytes of a row of k weights. ValueError for an unknown type or a row that is not whole blocks."""

def embedding(context: Context, type: str, table: _U8, ids: _I32, out: _F32) -> None:
    """Rows ids [T] of the table [V, bytes of a row] -> out [T, H]. IndexError for an id outside the table."""

# Below: arrays of another dtype, shape or memory order are a ValueError too.

class AttentionPlan:
    """The sequences of a step (`ops.base.AttentionInputs`), checked, with the work lists for them."""

    def __init__(
        self, row_starts: _I32, context_lens: _I32, tiles: _I32, tile_starts: _I32
    ) -> None: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_seqs(self) -> int: ...
    @property
    def num_shared_items(self) -> int:
        """Pieces of work that served several sequences at once, in the calls made so far."""

def paged_attention(
    context: Context,
    plan: AttentionPlan,
    kv: npt.NDArray[Any],
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None,
    q: _F32,
    out: _F32,
) -> None:
    """q, out [plan.num_rows, num_heads * head_dim]; kv float16 or float32 [tiles, layers, 2, Hkv, head_dim * 16]."""

def rope_and_store(
    context: Context,
    qkv: _F32,
    kv: npt.NDArray[Any],
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    positions: _I32,
    slots: _I32,
    cos: _F32,
    sin: _F32,
    interleaved: bool,
    q_norm: _F32 | None,
    k_norm: _F32 | None,
    eps: float,
    out: _F32,
) -> None:
    """qkv [T, (Hq + 2 Hkv) * head_dim] -> out [T, Hq * head_dim], and keys and values into kv."""

def rms_norm(
    context: Context, x: _F32, weight: _F32, eps: float, residual: _F32 | None, out: _F32
) -> None:
    """x [T, H] -> out [T, H]; residual += x first, in place, if there is one."""

def silu_mul(context: Context, gate_up: _F32, out: _F32) -> None:
    """gate_up [T, 2 I] -> out [T, I]."""

def argmax(context: Context, x: _F32) -> list[int]:
    """x [R, V] -> the column of each row's largest number, lowest of equals; -1 if that is infinite or a NaN is there."""

def copy_tiles(context: Context, kv: npt.NDArray[Any], src: _I32, dst: _I32) -> None:
    """kv[dst[i]] = kv[src[i]] for each i, in order."""

class Program:
    """A forward pass, recorded op by op and run as one call. Op methods return the number of their result.

    They hold on to their arrays and maps, and raise ValueError for sizes that do not fit together.
    """

    def __init__(self, context: Context) -> None: ...
    def embedding(self, type: str, table: _U8, width: int) -> int: ...
    def rms_norm(self, x: int, weight: _F32, eps: float, residual: int | None) -> int: ...
    def linear(self, x: int, weight: Linear, bias: _F32 | None) -> int: ...
    def rope_and_store(
        self,
        qkv: int,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        cos: _F32,
        sin: _F32,
        interleaved: bool,
        q_norm: _F32 | None,
        k_norm: _F32 | None,
        eps: float,
    ) -> int: ...
    def paged_attention(
        self,
        q: int,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None,
    ) -> int: ...
    def silu_mul(self, gate_up: int) -> int: ...
    def take_logits_rows(self, x: int) -> int: ...
    def finish(self, result: int) -> None:
        """End the recording; `result` is for the rows that get logits."""

    @property
    def width(self) -> int:
        """Of the result."""

    @property
    def num_instructions(self) -> int: ...
    @property
    def num_buffers(self) -> int: ...
    def run(
        self,
        token_ids: _I32,
        positions: _I32,
        slots: _I32,
        attention: AttentionPlan,
        logits_rows: _I32,
        kv: npt.NDArray[Any],
        out: _F32,
    ) -> None:
        """token_ids, positions, slots [T], logits_rows [R] -> out [R, width]. IndexError for a token id."""

# The machine's own peaks: each call does work that the caller times. All threads of the context take part.

def peak_read(context: Context, data: _U8) -> int:
    """Read data [n] once; bytes that were read."""

def peak_fma(context: Context, rounds: int) -> int:
    """float32 multiply-adds in registers; operations done, two for each multiply-add."""

def peak_dot(context: Context, rounds: int) -> int:
    """Dot products of bytes in registers; operations done."""

def peak_dot_name(context: Context) -> str:
    """The instruction that `peak_dot` uses."""

"""Octavo's CPU kernels (csrc/bindings.cpp). Arrays are C-contiguous, of exactly the dtype named, never converted."""

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

def make_linear(context: Context, parts: list[tuple[str, str, _U8]], k: int) -> Linear:
    """(name, GGUF type, [n_i, bytes of a row of k weights]) each, stacked. ValueError for weights that are not finite."""

def linear(context: Context, weight: Linear, x: _F32, bias: _F32 | None, out: _F32) -> None:
    """x [T, k] -> out [T, num_outputs], bias [num_outputs]. TypeError for other dtypes, ValueError for other shapes."""

def row_bytes(type: str, k: int) -> int:
    """Bytes of a row of k weights. ValueError for an unknown type or a row that is not whole blocks."""

def embedding(type: str, table: _U8, ids: _I32, out: _F32) -> None:
    """Rows ids [T] of the table [V, bytes of a row] -> out [T, H]. IndexError for an id outside the table."""

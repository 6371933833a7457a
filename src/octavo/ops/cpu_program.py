"""Programs of the CPU op set: a forward pass runs once on symbols, and from then on as one native call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from octavo import _native
from octavo.ops.base import F32, AttentionShape, Batch, Forward, Ops, Rope, WeightTensor


class Symbol:
    """Stands for an array while a forward pass is recorded. Only ops can use it; anything else is a TypeError."""

    __slots__ = ("id",)
    __array_ufunc__ = None

    def __init__(self, id: int) -> None:
        self.id = id

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a forward pass that is compiled can use its arrays only through ops: what an array "
            "holds, and how many rows it has, is known when the program runs, not when it is recorded"
        )

    __array__ = __getattr__ = __getitem__ = __setitem__ = __len__ = __iter__ = __bool__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = _refuse


class Recorder:
    """Implements `octavo.ops.base.Ops` on symbols: every op becomes an instruction of `program`.

    Ops raise ValueError for widths that do not fit, TypeError for what a program cannot do.
    """

    name = "cpu-recorder"

    def __init__(self, context: _native.Context) -> None:
        self.program = _native.Program(context)
        names = ("token_ids", "positions", "slots", "attention", "logits_rows", "kv")
        self._fields: dict[str, Any] = {name: Symbol(-1) for name in names}
        self.batch = Batch(**self._fields)

    def embedding(self, table: Any, token_ids: Any) -> Any:
        """See `Ops.embedding`."""
        self._expect_field("embedding", "token_ids", token_ids)
        return Symbol(self.program.embedding(table.type, table.rows, table.num_columns))

    def rms_norm(self, x: Any, weight: F32, eps: float, residual: Any = None) -> Any:
        """See `Ops.rms_norm`."""
        added = None if residual is None else _id("rms_norm", residual)
        return Symbol(self.program.rms_norm(_id("rms_norm", x), weight, eps, added))

    def linear(self, x: Any, weight: Any, bias: F32 | None = None) -> Any:
        """See `Ops.linear`."""
        return Symbol(self.program.linear(_id("linear", x), weight, bias))

    def rope_and_store(
        self,
        qkv: Any,
        layer: int,
        batch: Batch,
        shape: AttentionShape,
        rope: Rope,
        q_norm: F32 | None = None,
        k_norm: F32 | None = None,
        eps: float = 0.0,
    ) -> Any:
        """See `Ops.rope_and_store`."""
        self._expect_batch("rope_and_store", batch)
        result = self.program.rope_and_store(
            _id("rope_and_store", qkv), layer, shape.num_heads, shape.num_kv_heads, shape.head_dim,
            rope.cos, rope.sin, rope.interleaved, q_norm, k_norm, eps,
        )  # fmt: skip
        return Symbol(result)

    def paged_attention(self, q: Any, layer: int, batch: Batch, shape: AttentionShape) -> Any:
        """See `Ops.paged_attention`."""
        self._expect_batch("paged_attention", batch)
        result = self.program.paged_attention(
            _id("paged_attention", q),
            layer,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.scale,
            shape.window,
        )
        return Symbol(result)

    def silu_mul(self, gate_up: Any) -> Any:
        """See `Ops.silu_mul`."""
        return Symbol(self.program.silu_mul(_id("silu_mul", gate_up)))

    def take_rows(self, x: Any, rows: Any) -> Any:
        """See `Ops.take_rows`; `rows` are batch.logits_rows."""
        self._expect_field("take_rows", "logits_rows", rows)
        return Symbol(self.program.take_logits_rows(_id("take_rows", x)))

    def quantize(self, weight: WeightTensor, format: str) -> WeightTensor:
        """Not part of a forward pass."""
        raise _outside("quantize")

    def prepare_linear(self, parts: Sequence[WeightTensor]) -> Any:
        """Not part of a forward pass."""
        raise _outside("prepare_linear")

    def prepare_table(self, weight: WeightTensor) -> Any:
        """Not part of a forward pass."""
        raise _outside("prepare_table")

    def prepare_vector(self, weight: WeightTensor) -> Any:
        """Not part of a forward pass."""
        raise _outside("prepare_vector")

    def plan_attention(self, inputs: Any) -> Any:
        """Not part of a forward pass."""
        raise _outside("plan_attention")

    def copy_tiles(self, kv: Any, src: Any, dst: Any) -> None:
        """Not part of a forward pass."""
        raise _outside("copy_tiles")

    def argmax(self, x: Any) -> Any:
        """Not part of a forward pass."""
        raise _outside("argmax")

    def compile(self, forward: Forward) -> Any:
        """Not part of a forward pass."""
        raise _outside("compile")

    def _expect_field(self, op: str, name: str, value: object) -> None:
        if value is not self._fields[name]:
            raise TypeError(f"{op}: a program can only take batch.{name}, got {_what(value)}")

    def _expect_batch(self, op: str, batch: object) -> None:
        if batch is not self.batch:
            raise TypeError(f"{op}: expected the batch that the forward pass got, got another")


class Program:
    """A recorded forward pass: `program(batch)` gives what the function gave, with the same bits.

    Raises ValueError (IndexError for a token id) for a batch that does not fit, and can go on after it. Its memory
    is as large as the largest step so far needed.
    """

    def __init__(self, context: _native.Context, forward: Forward) -> None:
        recorder = Recorder(context)
        ops: Ops = recorder
        result: Any = forward(ops, recorder.batch)
        recorder.program.finish(_id("the forward pass's result", result))
        self._native = recorder.program
        self._width = recorder.program.width

    def __call__(self, batch: Batch) -> F32:
        """One step: float32 [R, width]."""
        out = np.empty((len(batch.logits_rows), self._width), np.float32)
        self._native.run(
            batch.token_ids,
            batch.positions,
            batch.slots,
            batch.attention,
            batch.logits_rows,
            batch.kv,
            out,
        )
        return out


def _id(op: str, x: object) -> int:
    """The value that a symbol stands for."""
    if not isinstance(x, Symbol) or x.id < 0:
        raise TypeError(f"{op}: expected an array made by an op of this pass, got {_what(x)}")
    return x.id


def _what(x: object) -> str:
    return "an array of the batch" if isinstance(x, Symbol) and x.id < 0 else type(x).__name__


def _outside(op: str) -> TypeError:
    return TypeError(f"{op} is not part of a forward pass: call it before")

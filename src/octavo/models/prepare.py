"""Weights prepared by an op set: converted and packed, or taken as they are from a packed copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.models.convert import Convert, TensorSource
from octavo.models.packed_copy import PackedCopy
from octavo.models.packed_file import PackedPart
from octavo.ops.base import F32, Ops, PackingOps, WeightTensor


class Preparer:
    """Prepares the tensors of `source` on `ops`.

    With a packed copy, a part that the copy has is used in place and its tensors are not read; any
    other is prepared, and noted for the copy.
    """

    def __init__(self, source: TensorSource, ops: Ops, copy: PackedCopy | None = None) -> None:
        self._source = source
        self._ops = ops
        self._copy = copy
        self._last: tuple[WeightTensor, str, WeightTensor] | None = None

    def vector(self, name: str) -> F32:
        """A norm weight or a bias, float32."""
        return self._ops.prepare_vector(self._source.tensor(name))

    def linear(self, names: Sequence[str], convert: Convert) -> Any:
        """The matrices of those names, converted and stacked, as one linear map of the op set."""
        copy, ops = self._copy, self._ops
        if copy is None or not isinstance(ops, PackingOps):
            return ops.prepare_linear([self._converted(name, convert) for name in names])
        found = [self._source.peek(name) for name in names]
        matrices = tuple((convert.type_of(w), w.shape[0]) for w in found)
        width = found[0].shape[-1]
        data = copy.take("+".join(names), matrices, width)
        if data is not None:
            return ops.linear_from_packed(matrices, width, data)
        linear = ops.prepare_linear([self._converted(name, convert) for name in names])
        copy.keep(PackedPart("+".join(names), matrices, width, ops.packed_bytes(linear)))
        return linear

    def table(self, name: str, convert: Convert) -> Any:
        """The matrix of that name, converted, to look rows up in; else it stays in its file."""
        found = self._source.peek(name)
        wanted = convert.type_of(found)
        if self._copy is None or wanted == found.type:
            return self._ops.prepare_table(self._converted(name, convert))
        matrices, width = ((wanted, found.shape[0]),), found.shape[-1]
        data = self._copy.take(f"table {name}", matrices, width)
        if data is None:
            weight = self._converted(name, convert)
            self._copy.keep(PackedPart(f"table {name}", matrices, width, weight.data.reshape(-1)))
        else:
            rows = data.reshape(found.shape[0], -1)
            weight = WeightTensor(found.name, found.shape, wanted, rows)
        return self._ops.prepare_table(weight)

    def _converted(self, name: str, convert: Convert) -> WeightTensor:
        """The tensor, converted; once for an embedding table that is the output matrix too."""
        weight = self._source.tensor(name)
        wanted = convert.type_of(weight)
        if self._last is None or self._last[0] is not weight or self._last[1] != wanted:
            self._last = weight, wanted, convert(weight, self._ops)
        return self._last[2]

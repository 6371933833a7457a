"""Linear maps of every weight type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.bench.kernels.native import _native
from octavo.bench.kernels.result import Result
from octavo.bench.kernels.shapes import ModelShape
from octavo.bench.kernels.timing import Rotation, seconds_of
from octavo.bench.kernels.weights import random_weight
from octavo.ops.cpu import CpuOps

COLD_BYTES = 128 << 20
"""Weights that a rotation holds: more than a cache, as the layers of a model are."""

MAX_COPIES = 64

MAX_BYTES = 256 << 20
"""A larger matrix is measured with fewer outputs: rates do not depend on it, and memory stays
small."""


def linear_results(
    ops: CpuOps,
    shape: ModelShape,
    type: str,
    rows: tuple[int, ...],
    min_seconds: float,
    rounds: int,
) -> Iterator[Result]:
    """Each linear map of the shape with each number of rows; the output matrix up to 64 rows.

    Types whose blocks do not fit the shape's sizes are left out.
    """
    for name, (outputs, inputs) in shape.linears().items():
        try:
            row_bytes = _native.row_bytes(type, inputs)
        except ValueError:
            continue
        outputs = min(outputs, MAX_BYTES // row_bytes // 16 * 16)
        num_bytes = outputs * row_bytes
        copies = max(1, min(MAX_COPIES, COLD_BYTES // num_bytes))
        weight = random_weight(name, type, outputs, inputs)
        packed = [ops.prepare_linear([weight]) for _ in range(copies)]
        del weight
        for count in rows:
            if name == "head" and count > 64:
                continue  # it runs for sampled positions only
            x = np.random.default_rng(count).standard_normal((count, inputs), np.float32)
            calls = Rotation([lambda w=w, x=x: ops.linear(x, w) for w in packed])  # type: ignore[misc]
            yield Result(
                kernel="linear",
                model=shape.name,
                what=f"{name} {outputs}x{inputs} {type}",
                rows=count,
                seconds=seconds_of(calls, min_seconds, rounds),
                num_bytes=num_bytes + 4 * count * (inputs + outputs),
                num_ops=2 * count * inputs * outputs,
                is_integer=type not in ("F32", "F16", "BF16"),
            )

"""One measured kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.bench.kernels.peaks import Peaks


@dataclass(frozen=True, slots=True)
class Result:
    """`num_bytes`: read and written by a call, each array once. `num_ops`: arithmetic of a call, or
    0.

    `is_integer`: the arithmetic is 8-bit dot products, else float32.
    """

    kernel: str
    model: str
    what: str
    rows: int
    seconds: float
    num_bytes: int
    num_ops: int = 0
    is_integer: bool = False

    def figures(self, peaks: Peaks) -> dict[str, Any]:
        """Rates, and their share of the peaks in per cent."""
        rate, ops = self.num_bytes / self.seconds, self.num_ops / self.seconds
        return {
            "kernel": self.kernel,
            "model": self.model,
            "what": self.what,
            "rows": self.rows,
            "us": 1e6 * self.seconds,
            "gb_per_s": rate / 1e9,
            "read_pct": 100 * rate / peaks.read,
            "gop_per_s": ops / 1e9,
            "ops_pct": 100 * ops / peaks.ops(self.is_integer),
        }

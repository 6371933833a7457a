"""The CPU op set: the protocol of `ops.base` on the native kernels in csrc/.

Importing this module fails with ImportError where the kernels were not built; `ops.select` handles that.
"""

from __future__ import annotations

from octavo import _native


class CpuOps:
    """`Ops` on the CPU.

    `threads` includes the calling one. `isa`: portable, avx2 or avx512; "" takes OCTAVO_ISA, else the
    best that the machine has (ValueError for one it lacks). Arrays are C-contiguous float32.
    """

    def __init__(self, threads: int, isa: str = "") -> None:
        self._context = _native.Context(threads, isa)
        self.name = f"cpu-{self._context.isa}"

    # ---- linear and embedding

    # ---- norms, rope, attention, activation, block copy

"""Attention when memory runs out: an error for the caller, and the next call works."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("octavo._native", reason="the native kernels are not built (make native)")

SCRIPT = """
    import resource
    from pathlib import Path

    import numpy as np

    from octavo import _native

    # So large a head that scratch is tens of MB, and enough work for all threads.
    DIM, HEADS, SEQS = 1 << 16, 12, 8
    context = _native.Context(3, "")
    kv = np.ones((SEQS, 1, 2, 1, DIM * 16), np.float16)
    q = np.ones((SEQS, HEADS * DIM), np.float32)
    out = np.zeros_like(q)
    starts = np.arange(SEQS + 1, dtype=np.int32)
    plan = _native.AttentionPlan(starts, np.full(SEQS, 16, np.int32), starts[:-1], starts)
    call = lambda: _native.paged_attention(context, plan, kv, 0, HEADS, 1, DIM, 1e-6, None, q, out)

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), hard))
    for _ in range(2):
        try:
            call()
        except MemoryError:
            print("refused")
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    call()
    print(out.min(), out.max())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space by /proc and rlimit")
def test_no_memory_for_scratch_is_an_error_and_no_end():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["refused", "refused", "1.0", "1.0"], done.stderr

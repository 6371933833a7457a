"""The native module, for what no op set offers: the machine's peaks and sizes of rows.

Importing it fails with ImportError where the kernels were not built.
"""

from __future__ import annotations

from octavo import _native

__all__ = ["_native"]

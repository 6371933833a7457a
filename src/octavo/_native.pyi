"""Octavo's CPU kernels (csrc/bindings.cpp). Arrays are C-contiguous, of exactly the dtype named, never converted."""

from typing import Any

class Context:
    """Threads and instruction set that kernel calls run with."""

    def __init__(self, threads: int, isa: str = "") -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

def best_isa() -> str: ...

"""Where everything is put together: `build` for the server, `LLM` for offline use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.llm.build import Built, build
    from octavo.llm.offline import LLM
    from octavo.llm.outputs import CompletionOutput, RequestOutput

__all__ = ["LLM", "Built", "CompletionOutput", "RequestOutput", "build"]

_HOMES = {
    "LLM": "offline",
    "Built": "build",
    "build": "build",
    "CompletionOutput": "outputs",
    "RequestOutput": "outputs",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that the command line can read settings before arrays and models are imported.
    if name not in _HOMES:
        raise AttributeError(f"module 'octavo.llm' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"octavo.llm.{_HOMES[name]}"), name)

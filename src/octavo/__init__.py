"""Octavo: an LLM server whose KV cache is virtual memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.llm.beam_search import BeamSearchParams
    from octavo.request import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "BeamSearchParams", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy, so that `import octavo` loads neither arrays nor model code.
    if name == "LLM":
        from octavo.llm import LLM

        return LLM
    if name == "BeamSearchParams":
        from octavo.llm.beam_search import BeamSearchParams

        return BeamSearchParams
    if name == "SamplingParams":
        from octavo.request import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")

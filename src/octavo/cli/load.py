"""Loads a model for the commands that need no server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octavo.cli import logs
from octavo.cli.progress import LoadBar
from octavo.request import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM


def load(
    settings: dict[str, Any],
    sampling: Callable[[dict[str, Any], SamplingParams], SamplingParams],
) -> tuple[LLM, SamplingParams]:
    """The model of `settings`, and the sampling parameters that `sampling` takes out of them.

    The parameters are checked before anything is loaded, then put over the model's own defaults.
    """
    logs.configure("warning")
    flags = dict(settings)
    sampling(settings, SamplingParams())
    from octavo.llm import LLM
    from octavo.llm.settings import engine_config

    with LoadBar() as bar:
        llm = LLM.from_config(engine_config(settings), progress=bar)
    return llm, sampling(flags, llm.default_sampling)

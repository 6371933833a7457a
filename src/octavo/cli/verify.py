"""`octavo verify`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from octavo.bench.verify.options import VerifyOptions
from octavo.cli import logs
from octavo.config import ModelConfig


def verify(settings: dict[str, Any]) -> None:
    """Run every regime; exits with 1 unless all of them happened and are equal."""
    from octavo.bench.verify.run import verify
    from octavo.llm import LLM
    from octavo.llm.settings import engine_config

    logs.configure("warning")
    options = VerifyOptions(**_take(VerifyOptions, settings))
    model = _take(ModelConfig, settings)

    def make(chosen: Mapping[str, Any]) -> LLM:
        return LLM.from_config(engine_config({**model, **chosen}))

    if not verify(make, ModelConfig(**model), options):
        sys.exit(1)


def _take(cls: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {f.name: settings.pop(f.name) for f in dataclasses.fields(cls) if f.name in settings}

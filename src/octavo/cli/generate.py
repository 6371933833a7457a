"""`octavo generate`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from octavo.cli.load import load
from octavo.cli.sampling import sampling_params
from octavo.errors import ModelNotFoundError, RequestError, SequenceError


def generate(settings: dict[str, Any], prompt: str | None, stream: bool) -> None:
    """Complete one text and print what comes after it."""
    if prompt is None:
        _check_not_a_text(settings["model"])
        if sys.stdin.isatty():
            raise RequestError("expected --prompt TEXT, or the text on standard input", "prompt")
    text = sys.stdin.read().removesuffix("\n") if prompt is None else prompt
    try:
        llm, params = load(settings, sampling_params)
    except ModelNotFoundError as error:
        hint = "" if prompt is not None else " A text to complete goes to --prompt."
        raise ModelNotFoundError(f"{error}{hint}") from None
    with llm:
        if not stream:
            output = llm.generate(text, params, use_tqdm=False)[0].outputs[0]
            if output.error is not None:
                raise SequenceError(output.error)
            print(output.text)
            return
        for delta in llm.stream(text, params):
            print(delta.text, end="", flush=True)
        print()


def _check_not_a_text(model: str) -> None:
    """Raise RequestError for MODEL that is meant as the prompt: no model's name has a space."""
    if any(c.isspace() for c in model.strip()) and not Path(model).expanduser().exists():
        raise RequestError(
            f"there is no model {model!r}; a text to complete goes to --prompt: "
            f"octavo generate --prompt {shlex.quote(model)}",
            "prompt",
        )

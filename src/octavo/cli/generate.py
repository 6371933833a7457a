"""`octavo generate`."""

from __future__ import annotations

import sys
from typing import Any

from octavo.cli.load import load
from octavo.cli.sampling import sampling_params
from octavo.errors import RequestError, SequenceError


def generate(settings: dict[str, Any], prompt: str | None, stream: bool) -> None:
    """Complete one text and print what comes after it."""
    if prompt is None and sys.stdin.isatty():
        raise RequestError("expected --prompt TEXT, or the text on standard input", "prompt")
    text = sys.stdin.read().removesuffix("\n") if prompt is None else prompt
    llm, params = load(settings, sampling_params)
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

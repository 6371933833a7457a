"""Waits for a server, and asks what it serves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from octavo.bench.http.client import HttpClient, HttpError
from octavo.errors import EngineError

POLL = 0.1
"""Seconds between two tries."""


async def ready_model(client: HttpClient, model: str | None, patience: float) -> str:
    """`model`, or else the first name of /v1/models, once the server answers.

    Raises EngineError if it does not within `patience` seconds, or if it names no model.
    """
    end = time.monotonic() + patience
    while True:
        try:
            answer = await asyncio.wait_for(client.get_json("/v1/models"), patience)
            return model or _first(answer)
        except HttpError as error:
            why = str(error)
            if error.status != 503:  # there, and not about to change its mind
                if model is not None:
                    return model
                raise EngineError(f"{client.url}: {why}; name the model with --model") from None
        except (OSError, TimeoutError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
        if time.monotonic() > end:
            raise EngineError(f"{client.url}: no answer in {patience:g} s ({why})")
        await asyncio.sleep(POLL)


def _first(answer: Any) -> str:
    try:
        return str(answer["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise EngineError("/v1/models names no model; name one with --model") from None

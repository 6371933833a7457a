"""From deltas to an HTTP answer, streamed or whole: the same pieces either way."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.outputs import TextDelta
from octavo.errors import OctavoError
from octavo.server.disconnect import until_disconnect
from octavo.server.error_responses import error_body, internal_error_body
from octavo.server.generation import Generation
from octavo.server.requests import SamplingFields
from octavo.server.responses import Usage, encode
from octavo.server.sse import DONE, EventStream, event

log = logging.getLogger("octavo.server")
C = TypeVar("C")
UsageField = Usage | UnsetType | None


class Writer(Protocol[C]):
    """Writes the answer of one endpoint. A piece is what one delta adds to one choice."""

    def pieces(self, prompt_index: int, delta: TextDelta) -> Sequence[C]:
        """The pieces that may be sent once this delta is here."""

    def chunk(self, pieces: list[C], usage: UsageField) -> msgspec.Struct:
        """One event of a stream."""

    def whole(self, pieces: list[C], usage: Usage) -> msgspec.Struct:
        """The whole answer from all pieces."""


async def answer(
    request: Request, body: SamplingFields, writer: Writer[C], generation: Generation, name: str
) -> Response:
    """The response for a request that the engine has admitted under `name`."""
    headers = {"x-request-id": name}
    if body.stream:
        return EventStream(_events(body, writer, generation), headers)
    done = await until_disconnect(request.receive, _collect(writer, generation))
    if done is None:  # nobody is there to read it; the request is aborted
        return Response(status_code=499)
    return Response(encode(done), media_type="application/json", headers=headers)


async def _collect(writer: Writer[C], generation: Generation) -> msgspec.Struct:
    pieces: list[C] = []
    try:
        async for prompt_index, delta in generation:
            pieces.extend(writer.pieces(prompt_index, delta))
    finally:
        await generation.aclose()
    return writer.whole(pieces, generation.usage)


async def _events(
    body: SamplingFields, writer: Writer[C], generation: Generation
) -> AsyncGenerator[bytes, None]:
    options = body.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    in_every = wants_usage and options is not None and bool(options.continuous_usage_stats)
    usage: UsageField = None if wants_usage else UNSET
    try:
        async for prompt_index, delta in generation:
            for piece in writer.pieces(prompt_index, delta):
                yield event(writer.chunk([piece], generation.usage if in_every else usage))
        if wants_usage:
            yield event(writer.chunk([], generation.usage))
        yield DONE
    except OctavoError as error:
        yield event(error_body(error))
    except Exception:
        log.exception("a stream failed")
        yield event(internal_error_body())
    finally:
        await generation.aclose()

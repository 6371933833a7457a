"""The deltas of all prompts of one HTTP request, as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from octavo.engine.outputs import TextDelta
from octavo.errors import EngineStoppedError, SequenceError
from octavo.request import SamplingParams
from octavo.server.interfaces import DeltaStream, ServingEngine
from octavo.server.responses import PromptTokensDetails, Usage


class Generation:
    """Iterates over (prompt index, delta) and counts usage; `aclose` aborts what still runs.

    A delta that ends in an error or an abort raises: one HTTP request fails as a whole.
    """

    def __init__(self, num_prompt_tokens: int) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.num_completion_tokens = 0
        self._cached: dict[int, int] = {}
        self._streams: list[DeltaStream] = []

    @classmethod
    async def start(
        cls,
        engine: ServingEngine,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> Generation:
        """Admit all prompts or none; raises what `engine.generate` raises."""
        self = cls(sum(map(len, prompts)))
        try:
            for i, prompt in enumerate(prompts):
                name = request_id if len(prompts) == 1 else f"{request_id}-{i}"
                stream = engine.generate(
                    prompt, params, request_id=name, priority=priority, cache_salt=cache_salt
                )
                self._streams.append(stream)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Abort what still runs."""
        for stream in self._streams:
            await stream.aclose()

    @property
    def usage(self) -> Usage:
        """Counts so far."""
        p, c = self.num_prompt_tokens, self.num_completion_tokens
        return Usage(p, c, p + c, PromptTokensDetails(sum(self._cached.values())))

    async def __aiter__(self) -> AsyncIterator[tuple[int, TextDelta]]:
        if len(self._streams) == 1:
            async for delta in self._streams[0]:
                yield self._seen(0, delta)
            return
        queue: asyncio.Queue[tuple[int, TextDelta] | Exception | None] = asyncio.Queue()
        pumps = [asyncio.create_task(_pump(i, s, queue)) for i, s in enumerate(self._streams)]
        try:
            running = len(pumps)
            while running:
                item = await queue.get()
                if item is None:
                    running -= 1
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield self._seen(*item)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def _seen(self, prompt_index: int, delta: TextDelta) -> tuple[int, TextDelta]:
        if delta.finish_reason == "error":
            raise SequenceError(delta.error or "the sequence failed; send the request again")
        if delta.finish_reason == "abort":
            raise EngineStoppedError("the server stopped this request; send it again")
        self.num_completion_tokens += len(delta.token_ids)
        cached = self._cached.get(prompt_index, 0)
        self._cached[prompt_index] = max(cached, delta.num_cached_tokens)
        return prompt_index, delta


async def _pump(
    index: int,
    stream: DeltaStream,
    queue: asyncio.Queue[tuple[int, TextDelta] | Exception | None],
) -> None:
    try:
        async for delta in stream:
            queue.put_nowait((index, delta))
        queue.put_nowait(None)
    except Exception as error:
        queue.put_nowait(error)
    finally:
        with suppress(Exception):
            await stream.aclose()

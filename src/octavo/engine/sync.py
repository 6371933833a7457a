"""The engine in the calling thread: for the offline API and for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from octavo.engine.core import EngineCore
from octavo.engine.frontend import Frontend, stopped_early
from octavo.engine.limits import EngineLimits
from octavo.engine.outputs import TextDelta
from octavo.request import SamplingParams
from octavo.text.tokenizer import Tokenizer


class SyncEngine:
    """Steps the core while its generator is read."""

    def __init__(
        self, core: EngineCore, tokenizer: Tokenizer, limits: EngineLimits, seed: int = 0
    ) -> None:
        self.core = core
        self.limits = limits
        self._frontend = Frontend(tokenizer, limits, seed)
        self._ids = count(1)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        priorities: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, TextDelta]]:
        """Run prompts (token ids) together; yields (prompt's number, delta) as they come.

        All requests are checked before the first is queued (RequestError). Closing the generator
        aborts what is left.
        """
        names: dict[str, int] = {}
        requests = []
        try:
            for i, (token_ids, each) in enumerate(zip(prompts, params, strict=True)):
                request_id = f"offline-{next(self._ids)}"
                request = self._frontend.admit(
                    token_ids,
                    each,
                    request_id=request_id,
                    now=self.core.clock(),
                    priority=priorities[i] if priorities else 0,
                )
                names[request_id] = i
                requests.append(request)
            for request in requests:
                self.core.add_request(request)
            while self.core.has_work:
                for delta in self._frontend.deltas(self.core.step()):
                    if stopped_early(delta):
                        self.core.finish_choice(delta.request_id, delta.index)
                    for shown in self._frontend.release(delta):
                        yield names[delta.request_id], shown
        finally:
            for request_id in names:
                self.core.abort_request(request_id)
                self._frontend.forget(request_id)

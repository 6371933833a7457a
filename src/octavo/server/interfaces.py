"""What the server needs from the rest: the seams that a test double or another engine fills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from octavo.engine.limits import EngineLimits
    from octavo.engine.outputs import TextDelta
    from octavo.engine.stats import EngineStats, RequestTimes
    from octavo.request import SamplingParams
    from octavo.sched.plan import StepPlan


class DeltaStream(Protocol):
    """The text of one request as it comes; closing it aborts the request."""

    def __aiter__(self) -> AsyncIterator[TextDelta]: ...

    async def aclose(self) -> None:
        """Abort the request unless it has ended."""


class EngineHooks(Protocol):
    """Where the engine tells what happened; it calls from its own thread."""

    on_step: Callable[[StepPlan, float], None] | None
    on_finished: Callable[[RequestTimes], None] | None


class ServingEngine(Protocol):
    """The part of `engine.AsyncEngine` that the server uses."""

    @property
    def core(self) -> EngineHooks:
        """The hooks."""

    @property
    def limits(self) -> EngineLimits:
        """What a request may ask for."""

    @property
    def is_running(self) -> bool:
        """False once the engine drains, has stopped or has died."""

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> DeltaStream:
        """Admit one request, or raise RequestError, QueueFullError, EngineStoppedError at once."""

    async def start(self) -> None:
        """Start the engine thread; called inside the event loop that will read the deltas."""

    async def drain(self, timeout: float) -> None:
        """Take no new request, wait up to `timeout` seconds for the running ones, then stop."""

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""


class Tokenizer(Protocol):
    """The part of `text.Tokenizer` that the server uses."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Text to token ids."""

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Token ids to text."""

    @property
    def max_token_bytes(self) -> int:
        """Length in bytes of the longest token."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token stands for; they need not be whole characters."""


class ChatTemplate(Protocol):
    """Renders messages into the prompt the model was trained on."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """Raise RequestError when the template refuses the messages."""

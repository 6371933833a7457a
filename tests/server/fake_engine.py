"""An engine without a model: it answers with scripted tokens, one character of a text per token.

Token ids: 0 is end-of-text, id 1 + b is the byte b. It behaves as AsyncEngine does at its edges:
admission errors at once, deltas in steps, aclose aborts, drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from octavo.engine.limits import EngineLimits
from octavo.engine.outputs import TextDelta
from octavo.engine.stats import EngineStats, RequestTimes
from octavo.errors import EngineStoppedError
from octavo.request import SamplingParams, TokenLogprob
from octavo.sched.plan import StepPlan

EOS = 0
VOCAB = 257


class ByteTokenizer:
    """One token per byte."""

    max_token_bytes = 4096  # fits tests with a few special tokens; the limit has its own test

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1 + b for b in text.encode()]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if token_id == EOS else bytes([token_id - 1])


class PlainTemplate:
    """role: content, line by line."""

    def render(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: object,
    ) -> str:
        lines = [f"{m['role']}: {m['content']}" for m in messages]
        if add_generation_prompt:
            lines.append("assistant:")
        lines += [f"{k}={v}" for k, v in kwargs.items()]
        return "\n".join(lines)


@dataclass
class Script:
    """What the fake answers. `delay` seconds before each token; `fail_at`: token that fails.
    `paused` True: no token comes."""

    text: str = "Hello there, world."
    delay: float = 0.0
    fail_at: int | None = None
    cached: int = 0
    paused: bool = False
    hold: int = 1  # characters of text come `hold` tokens at a time


class FakeCore:
    on_step: Callable[[StepPlan, float], None] | None = None
    on_finished: Callable[[RequestTimes], None] | None = None


@dataclass
class FakeEngine:
    script: Script = field(default_factory=Script)
    max_model_len: int = 4096
    max_num_queued_reqs: int = 0
    vocab_size: int = VOCAB

    def __post_init__(self) -> None:
        self.core = FakeCore()
        self.limits = EngineLimits(
            max_model_len=self.max_model_len,
            num_kv_blocks=64,
            block_size=16,
            max_num_seqs=32,
            vocab_size=self.vocab_size,
            max_num_queued_reqs=self.max_num_queued_reqs,
        )
        self.is_running = False
        self.num_waiting = 0
        self.requests: list[tuple[list[int], SamplingParams, dict[str, object]]] = []
        self.open: dict[str, FakeStream] = {}
        self.aborted: list[str] = []

    async def start(self) -> None:
        self.is_running = True
        self.stopped = asyncio.Event()

    async def drain(self, timeout: float) -> None:
        self.is_running = False
        waited = 0.0
        while self.open and waited < timeout:
            await asyncio.sleep(0.01)
            waited += 0.01
        self.stopped.set()

    def stats(self) -> EngineStats:
        return EngineStats(
            num_requests_running=len(self.open),
            num_blocks_total=64,
            num_blocks_used=16,
            num_blocks_cached=8,
            num_blocks_free=40,
            prefix_cache_hits=48,
        )

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> FakeStream:
        if not self.is_running:
            raise EngineStoppedError("the engine is stopped: no new requests are taken")
        params = self.limits.admit(prompt_token_ids, params, self.num_waiting)
        extra: dict[str, object] = {"priority": priority, "cache_salt": cache_salt}
        self.requests.append((list(prompt_token_ids), params, extra))
        stream = FakeStream(self, request_id, list(prompt_token_ids), params)
        self.open[request_id] = stream
        return stream


class FakeStream:
    def __init__(
        self, engine: FakeEngine, request_id: str, prompt: list[int], params: SamplingParams
    ) -> None:
        self.engine, self.request_id = engine, request_id
        self.prompt, self.params = prompt, params
        self._deltas = self._run()

    def __aiter__(self) -> AsyncIterator[TextDelta]:
        return self._deltas

    async def aclose(self) -> None:
        if self.engine.open.pop(self.request_id, None) is not None:
            self.engine.aborted.append(self.request_id)
        await self._deltas.aclose()

    async def _run(self):  # type: ignore[no-untyped-def]
        script, params = self.engine.script, self.params
        choices = [_Choice(self, i) for i in range(params.n)]
        while any(not c.is_finished for c in choices):
            await self._pause(script.delay)
            while script.paused:
                await self._pause(0.005)
            for choice in choices:
                if not choice.is_finished:
                    yield choice.step()
        self.engine.open.pop(self.request_id, None)
        hook = self.engine.core.on_finished
        if hook is not None:
            hook(self._times(sum(c.num for c in choices)))

    async def _pause(self, seconds: float) -> None:
        """Raise, as a stream of AsyncEngine does, when the engine stops meanwhile."""
        await asyncio.wait([asyncio.ensure_future(self.engine.stopped.wait())], timeout=seconds)
        if self.engine.stopped.is_set():
            raise EngineStoppedError("the server is shutting down")

    def _times(self, num_tokens: int) -> RequestTimes:
        return RequestTimes(
            request_id=self.request_id,
            params=self.params,
            num_prompt_tokens=len(self.prompt),
            arrival=1.0,
            first_scheduled=1.5,
            first_token=2.0,
            last_token=4.0,
            num_generation_tokens=num_tokens,
            inter_token=[0.5] * max(num_tokens - 1, 0),
            finish_reason="stop",
        )


class _Choice:
    def __init__(self, stream: FakeStream, index: int) -> None:
        self.stream, self.index = stream, index
        seed = stream.params.seed
        text = stream.engine.script.text
        self.data = (text if seed is None else f"{seed}/{index} {text}").encode()
        self.num = 0
        self.held = b""
        self.shown = ""
        self.is_finished = False

    def step(self) -> TextDelta:
        params, script = self.stream.params, self.stream.engine.script
        if params.max_tokens == 0:
            return self._delta((), "", "length", None)
        if self.num == script.fail_at:
            self.is_finished = True
            return TextDelta(
                request_id=self.stream.request_id, index=self.index, text="",
                finish_reason="error", error="logits that are not numbers",
            )  # fmt: skip
        if self.num >= len(self.data) and not params.ignore_eos:
            self.num += 1
            return self._delta((EOS,), self._release(True), "stop", None)
        byte = self.data[self.num % len(self.data)]
        self.num += 1
        self.held += bytes([byte])
        for stop in params.stop:
            if self.held.endswith(stop.encode()):
                text = self.held.decode().removesuffix(stop)
                return self._delta((1 + byte,), text, "stop", stop)
        # With stop strings nothing is shown before the end: simple, and always allowed.
        text = self._release(not params.stop and self.num % script.hold == 0)
        last = self.num >= (params.max_tokens or 0)
        if last:
            text += self._release(True)
        return self._delta((1 + byte,), text, "length" if last else None, None)

    def _release(self, now: bool) -> str:
        if not now:
            return ""
        try:
            text = self.held.decode()
        except UnicodeDecodeError:
            return ""
        self.held = b""
        return text

    def _delta(
        self, ids: tuple[int, ...], text: str, reason: object, stop_reason: str | None
    ) -> TextDelta:
        params, first = self.stream.params, self.shown == "" and self.num <= 1
        self.shown += text
        self.is_finished = reason is not None
        prompt_logprobs = None
        if params.prompt_logprobs is not None and first and self.index == 0:
            k = params.prompt_logprobs
            prompt_logprobs = (None, *(_logprob(i, k) for i in self.stream.prompt[1:]))
        return TextDelta(
            request_id=self.stream.request_id,
            index=self.index,
            text=text,
            token_ids=ids,
            logprobs=() if params.logprobs is None
            else tuple(_logprob(i, params.logprobs) for i in ids),
            finish_reason=reason,  # type: ignore[arg-type]
            stop_reason=stop_reason,
            num_cached_tokens=self.stream.engine.script.cached,
            prompt_logprobs=prompt_logprobs,
        )  # fmt: skip


def _logprob(token_id: int, top: int) -> TokenLogprob:
    """The token itself first, then its neighbours, each half as likely."""
    ids = [token_id, *((token_id + i) % VOCAB for i in range(1, top))][:top]
    return TokenLogprob(token_id, -0.5, tuple((t, -0.5 * (i + 1)) for i, t in enumerate(ids)))

"""`LLM`: the engine without a server, in the calling thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from octavo.config import EngineConfig
from octavo.engine.outputs import TextDelta
from octavo.engine.stats import EngineStats, RequestTimes
from octavo.engine.sync import SyncEngine
from octavo.errors import EngineError, RequestError
from octavo.llm.beam_search import BeamSearchOutput, BeamSearchParams, search_output
from octavo.llm.build import Built, Progress, build
from octavo.llm.outputs import RequestOutput, new_output
from octavo.llm.settings import engine_config, keywords_in_errors
from octavo.request import SamplingParams
from octavo.text.prompt import encode_prompt

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


class LLM:
    """A loaded model.

        with LLM(model="smollm2-135m-instruct", max_num_seqs=64) as llm:
            for output in llm.generate(["Hello", "One, two,"], SamplingParams(max_tokens=8)):
                print(output.outputs[0].text)

    Keywords are the settings of config.py (those of the command line, with underscores). Raises
    ConfigError or ModelError. `progress(done, total)` is called while weights load. One call at a
    time; for concurrent callers there is `octavo serve`.
    """

    def __init__(
        self, model: str | None = None, *, progress: Progress | None = None, **settings: Any
    ) -> None:
        if model is not None:
            settings["model"] = model
        with keywords_in_errors():
            self._begin(build(engine_config(settings), progress))

    @classmethod
    def from_config(
        cls,
        config: EngineConfig,
        *,
        progress: Progress | None = None,
        like: Built | None = None,
    ) -> Self:
        """As LLM(...), from settings that are put together already; errors name flags.

        `like`: `built` of another one, whose weights are used (see build.py).
        """
        self = cls.__new__(cls)
        self._begin(build(config, progress, like))
        return self

    def _begin(self, built: Built) -> None:
        built.core.on_finished = self._note_times
        seed = built.config.device.seed
        engine = SyncEngine(built.core, built.tokenizer, built.limits, seed)
        self._open: tuple[Built, SyncEngine] | None = (built, engine)
        self._times: dict[str, RequestTimes] = {}
        self._busy = threading.Lock()

    @property
    def built(self) -> Built:
        """The parts: tokenizer, limits, engine core, ... Raises EngineError after `close`."""
        return self._parts[0]

    @property
    def default_sampling(self) -> SamplingParams:
        """What a call without parameters samples with: the author's defaults, 16 tokens.

        Parameters that are given replace it whole. To change a few of its fields:
        `dataclasses.replace(llm.default_sampling, max_tokens=100)`.
        """
        return self.built.default_sampling

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete prompts (text or token ids), all together; outputs in the order of the prompts.

        `sampling_params`: one for all, one for each, or None for `default_sampling`; what is given
        is taken as it is, the model's defaults are not mixed in. `use_tqdm` shows a progress bar if
        standard error is a terminal. Raises RequestError before anything runs.
        """
        texts = _as_list(prompts)
        ids = [encode_prompt(self.built.tokenizer, p, num_ids=self._num_ids) for p in texts]
        return self._complete(
            [p if isinstance(p, str) else None for p in texts], ids, sampling_params, use_tqdm
        )

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        add_generation_prompt: bool = True,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages with role and content) or several of them.

        Parameters as in `generate`. Raises RequestError for a conversation without messages.
        """
        many: Any = [messages] if not messages or isinstance(messages[0], Mapping) else messages
        texts = [self.render(each, add_generation_prompt) for each in many]
        ids = [self.built.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return self._complete(texts, ids, sampling_params, use_tqdm)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        use_tqdm: bool = True,
    ) -> list[BeamSearchOutput]:
        """The likeliest continuations of prompts, searched together; in the order of the prompts.

        `generate` does the same for SamplingParams with `use_beam_search`. Raises RequestError
        before anything runs, EngineError if a search failed.
        """
        settled = params.to_sampling_params()
        outputs = self.generate(prompts, settled, use_tqdm=use_tqdm)
        for output in outputs:
            if output.outputs[0].error is not None:
                raise EngineError(output.outputs[0].error)
        return [search_output(o, settled.length_penalty, self.built.tokenizer) for o in outputs]

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[TextDelta]:
        """Complete one prompt, delta by delta. Closing the iterator aborts the request."""
        ids = encode_prompt(self.built.tokenizer, prompt, num_ids=self._num_ids)
        return self._stream(ids, sampling_params)

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Iterator[TextDelta]:
        """Answer one conversation, delta by delta."""
        ids = self.built.tokenizer.encode(self.render(messages), add_special_tokens=False)
        return self._stream(ids, sampling_params)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The prompt that the chat template makes of a conversation. Raises RequestError."""
        if not messages:
            raise RequestError("messages: expected at least one message, got none", "messages")
        template = self.built.chat_template
        if template is None:
            raise RequestError(
                "the model has no chat template; give one with chat_template, or use generate",
                "messages",
            )
        return template.render(messages, add_generation_prompt=add_generation_prompt)

    def stats(self) -> EngineStats:
        """Gauges and counters of the engine: blocks, tokens, cache hits, preemptions."""
        return self.built.core.stats()

    def close(self) -> None:
        """Let go of the model and its KV memory; what is not on the disk tier yet is written."""
        if self._open is not None:
            self._open[0].core.close()
        self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- running -----------------------------------------------------------------------------------

    @property
    def _parts(self) -> tuple[Built, SyncEngine]:
        if self._open is None:
            raise EngineError("this LLM is closed; make a new one")
        return self._open

    @property
    def _num_ids(self) -> int:
        return self.built.limits.vocab_size

    def _note_times(self, times: RequestTimes) -> None:
        self._times[times.request_id] = times

    def _stream(self, ids: list[int], params: SamplingParams | None) -> Iterator[TextDelta]:
        params = params or self.built.default_sampling
        if params.num_choices > params.n:
            raise RequestError(
                f"best_of: expected n ({params.n}) in a stream, got {params.best_of}; which are the"
                " best is known at the end: use generate or chat",
                "best_of",
            )
        for _, delta in self._run([ids], [params]):
            if delta.error is not None:
                raise EngineError(delta.error)
            yield delta

    def _complete(
        self,
        prompts: list[str | None] | list[str],
        ids: list[list[int]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        show: bool,
    ) -> list[RequestOutput]:
        each = self._params(params, len(ids))
        outputs = [
            new_output(prompt, token_ids, p)
            for prompt, token_ids, p in zip(prompts, ids, each, strict=True)
        ]
        with _Bar(len(ids), show) as bar:
            for i, delta in self._run(ids, each):
                outputs[i].add(delta)
                if outputs[i].finished:
                    bar.advance()
        for output in outputs:
            output.metrics = self._times.pop(output.request_id, None)
        return outputs

    def _params(
        self, params: SamplingParams | Sequence[SamplingParams] | None, count: int
    ) -> list[SamplingParams]:
        if params is None:
            return [self.built.default_sampling] * count
        if isinstance(params, SamplingParams):
            return [params] * count
        if len(params) != count:
            raise RequestError(
                f"sampling_params: expected one for all or one for each of {count} prompts, got"
                f" {len(params)}",
                "sampling_params",
            )
        return list(params)

    def _run(
        self, ids: list[list[int]], params: list[SamplingParams]
    ) -> Iterator[tuple[int, TextDelta]]:
        if not self._busy.acquire(blocking=False):
            raise EngineError(
                "this LLM is generating already; finish or close that stream first "
                "(`octavo serve` takes concurrent callers)"
            )
        try:
            with keywords_in_errors():
                yield from self._parts[1].generate(ids, params)
        finally:
            self._busy.release()


class _Bar:
    """A progress bar over requests, if it is wanted and standard error is a terminal."""

    def __init__(self, total: int, show: bool) -> None:
        self._bar: Any = None
        if show and total > 1 and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("requests", total=total)

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt (a string, or a list of token ids) or several -> several."""
    if isinstance(prompts, str):
        return [prompts]
    items: list[Any] = list(prompts)
    if items and all(isinstance(i, int) and not isinstance(i, bool) for i in items):
        return [items]
    for at, item in enumerate(items):
        if isinstance(item, bytes | Mapping) or not isinstance(item, Sequence):
            raise RequestError(
                f"prompts[{at}]: expected text or a list of token ids, got {type(item).__name__}",
                "prompt",
            )
    return items

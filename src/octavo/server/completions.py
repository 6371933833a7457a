"""POST /v1/completions: how its answer is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from octavo.engine.outputs import TextDelta
from octavo.request import TokenLogprob
from octavo.server.answer import UsageField
from octavo.server.logprobs import CompletionLogprobWriter, TokenTexts
from octavo.server.responses import Completion, CompletionChoice, CompletionLogprobs, Usage


@dataclass(slots=True)
class _Prompt:
    token_ids: Sequence[int]
    echo: str | None
    logprobs: tuple[TokenLogprob | None, ...] | None = None
    held: list[TextDelta] = field(default_factory=list)


@dataclass(kw_only=True)
class CompletionWriter:
    """Choices are numbered prompt by prompt: choice j of prompt i is i * n + j.

    `echoes`: per prompt the text to begin with, or None.
    """

    id: str
    created: int
    model: str
    fingerprint: str
    n: int
    prompts: Sequence[Sequence[int]]
    echoes: Sequence[str | None]
    texts: TokenTexts
    logprobs: bool
    token_ids: bool

    def __post_init__(self) -> None:
        self._prompts = [_Prompt(p, e) for p, e in zip(self.prompts, self.echoes, strict=True)]
        self._choices: dict[int, CompletionLogprobWriter] = {}

    def pieces(self, prompt_index: int, delta: TextDelta) -> list[CompletionChoice]:
        """The delta's piece; none while the echoed prompt's logprobs are still to come, which
        arrive with choice 0 and then release what was held."""
        prompt = self._prompts[prompt_index]
        if prompt.echo is None or not self.logprobs:
            return [self._piece(prompt_index, delta)]
        if delta.prompt_logprobs is not None:
            prompt.logprobs = delta.prompt_logprobs
        prompt.held.append(delta)
        if prompt.logprobs is None:
            return []
        held, prompt.held = prompt.held, []
        return [self._piece(prompt_index, d) for d in held]

    def _piece(self, prompt_index: int, delta: TextDelta) -> CompletionChoice:
        index = prompt_index * self.n + delta.index
        is_first = index not in self._choices
        writer = self._choices.setdefault(index, CompletionLogprobWriter(self.texts))
        prompt = self._prompts[prompt_index]
        piece = CompletionChoice(index, "")
        if self.logprobs:
            piece.logprobs = CompletionLogprobs([], [], [], [])
        if is_first:
            piece.text = prompt.echo or ""
            if prompt.logprobs is not None:
                piece.logprobs = writer.write(prompt.token_ids, prompt.logprobs)
            if self.token_ids:
                piece.prompt_token_ids = list(prompt.token_ids)
        if self.token_ids:
            piece.token_ids = list(delta.token_ids)
        piece.text += delta.text
        piece.finish_reason, piece.stop_reason = delta.finish_reason, delta.stop_reason
        if piece.logprobs is not None:
            _extend(piece.logprobs, writer.write(delta.token_ids, delta.logprobs))
        return piece

    def chunk(self, pieces: list[CompletionChoice], usage: UsageField) -> msgspec.Struct:
        """One event of a stream."""
        return Completion(
            self.id, "text_completion", self.created, self.model, self.fingerprint, pieces, usage
        )

    def whole(self, pieces: list[CompletionChoice], usage: Usage) -> msgspec.Struct:
        """The whole answer."""
        choices: dict[int, CompletionChoice] = {}
        for piece in pieces:
            choice = choices.setdefault(piece.index, piece)
            if choice is not piece:
                _merge(choice, piece)
        return self.chunk([choices[i] for i in sorted(choices)], usage)


def _merge(choice: CompletionChoice, piece: CompletionChoice) -> None:
    choice.text += piece.text
    choice.finish_reason, choice.stop_reason = piece.finish_reason, piece.stop_reason
    if choice.logprobs is not None and piece.logprobs is not None:
        _extend(choice.logprobs, piece.logprobs)
    if choice.token_ids is not UNSET and piece.token_ids is not UNSET:
        choice.token_ids.extend(piece.token_ids)


def _extend(to: CompletionLogprobs, more: CompletionLogprobs) -> None:
    to.tokens.extend(more.tokens)
    to.token_logprobs.extend(more.token_logprobs)
    to.top_logprobs.extend(more.top_logprobs)
    to.text_offset.extend(more.text_offset)

"""POST /v1/chat/completions: how its answer is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from octavo.engine.outputs import TextDelta
from octavo.server.answer import UsageField
from octavo.server.logprobs import TokenTexts, chat_logprobs
from octavo.server.responses import (
    AssistantMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    Usage,
)


@dataclass(kw_only=True)
class ChatWriter:
    """A choice begins with a piece that names the role."""

    id: str
    created: int
    model: str
    fingerprint: str
    prompt: Sequence[int]
    texts: TokenTexts
    logprobs: bool
    token_ids: bool
    _begun: set[int] = field(default_factory=set)
    _has_sent_prompt: bool = False

    def pieces(self, prompt_index: int, delta: TextDelta) -> list[ChatChunkChoice]:
        """The delta's piece, after the role if it is the choice's first."""
        piece = ChatChunkChoice(
            delta.index,
            ChatDelta(content=delta.text),
            chat_logprobs(delta.logprobs, self.texts) if self.logprobs else None,
            delta.finish_reason,
            delta.stop_reason,
            list(delta.token_ids) if self.token_ids else UNSET,
        )
        if delta.index in self._begun:
            return [piece]
        self._begun.add(delta.index)
        return [ChatChunkChoice(delta.index, ChatDelta("assistant", "")), piece]

    def _prompt_ids(self) -> list[int] | UnsetType:
        if not self.token_ids or self._has_sent_prompt:
            return UNSET
        self._has_sent_prompt = True
        return list(self.prompt)

    def chunk(self, pieces: list[ChatChunkChoice], usage: UsageField) -> msgspec.Struct:
        """One event of a stream."""
        return ChatCompletionChunk(
            self.id,
            "chat.completion.chunk",
            self.created,
            self.model,
            self.fingerprint,
            pieces,
            usage,
            self._prompt_ids(),
        )

    def whole(self, pieces: list[ChatChunkChoice], usage: Usage) -> msgspec.Struct:
        """The whole answer."""
        by_index: dict[int, list[ChatChunkChoice]] = {}
        for piece in pieces:
            by_index.setdefault(piece.index, []).append(piece)
        return ChatCompletion(
            self.id,
            "chat.completion",
            self.created,
            self.model,
            self.fingerprint,
            [_whole_choice(i, by_index[i]) for i in sorted(by_index)],
            usage,
            self._prompt_ids(),
        )


def _whole_choice(index: int, pieces: list[ChatChunkChoice]) -> ChatChoice:
    text = "".join(p.delta.content for p in pieces if p.delta.content is not UNSET)
    choice = ChatChoice(index, AssistantMessage(text))
    for piece in pieces:
        if piece.logprobs is not None:
            if choice.logprobs is None:
                choice.logprobs = piece.logprobs
            else:
                choice.logprobs.content.extend(piece.logprobs.content)
        if piece.token_ids is not UNSET:
            have = [] if choice.token_ids is UNSET else choice.token_ids
            choice.token_ids = have + piece.token_ids
    choice.finish_reason, choice.stop_reason = pieces[-1].finish_reason, pieces[-1].stop_reason
    return choice

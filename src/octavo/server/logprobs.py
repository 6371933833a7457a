"""Log-probabilities in the two shapes of the API."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.request import TokenLogprob
from octavo.server.interfaces import Tokenizer
from octavo.server.responses import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    TopLogprob,
)

LOWEST = -9999.0
"""What stands for minus infinity, which JSON cannot write (OpenAI does the same)."""


class TokenTexts:
    """Token id -> its text and bytes, remembered: the same few thousand tokens come again."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, bytes]] = {}

    def __call__(self, token_id: int) -> tuple[str, bytes]:
        """Text and bytes; a token that is no whole characters reads `bytes:\\xf0\\x9f`."""
        known = self._known.get(token_id)
        if known is None:
            raw = self._tokenizer.token_bytes(token_id)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                text = "bytes:" + "".join(f"\\x{b:02x}" for b in raw)
            known = self._known[token_id] = (text, raw)
        return known


def chat_logprobs(entries: Sequence[TokenLogprob], texts: TokenTexts) -> ChatLogprobs:
    """The shape of chat completions."""
    content = []
    for entry in entries:
        text, raw = texts(entry.token_id)
        top = [_top(token_id, logprob, texts) for token_id, logprob in entry.top]
        content.append(ChatTokenLogprob(text, max(entry.logprob, LOWEST), list(raw), top))
    return ChatLogprobs(content)


def _top(token_id: int, logprob: float, texts: TokenTexts) -> TopLogprob:
    text, raw = texts(token_id)
    return TopLogprob(text, max(logprob, LOWEST), list(raw))


class CompletionLogprobWriter:
    """The shape of completions, for one choice; knows how far its text has come.

    A token's offset is that of the character its first byte belongs to, so that tokens sharing
    one character share one offset.
    """

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._num_chars = 0

    def write(
        self, token_ids: Sequence[int], entries: Sequence[TokenLogprob | None]
    ) -> CompletionLogprobs:
        """The next tokens; an entry is None for the prompt's first token."""
        out = CompletionLogprobs([], [], [], [])
        for token_id, entry in zip(token_ids, entries, strict=True):
            text, raw = self._texts(token_id)
            out.tokens.append(text)
            inside = bool(raw) and raw[0] & 0xC0 == 0x80
            out.text_offset.append(max(self._num_chars - inside, 0))
            self._num_chars += sum(b & 0xC0 != 0x80 for b in raw)
            out.token_logprobs.append(None if entry is None else max(entry.logprob, LOWEST))
            out.top_logprobs.append(None if entry is None else self._tops(entry))
        return out

    def _tops(self, entry: TokenLogprob) -> dict[str, float]:
        """The alternatives, and the token itself when it is not among them."""
        tops: dict[str, float] = {}
        for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            tops.setdefault(self._texts(token_id)[0], max(logprob, LOWEST))
        return tops

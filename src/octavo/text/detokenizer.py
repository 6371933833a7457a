"""Token ids to text, a few at a time, without ever splitting a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from octavo.text.vocab import Vocab


class IncrementalDetokenizer:
    """The text of a growing sequence of tokens.

    All that push() returned, followed by flush(), is what decoding the whole sequence at once
    gives, byte for byte: bytes of an unfinished character wait until it is whole, and bytes that
    can never become one turn into U+FFFD just as `bytes.decode(errors="replace")` has it. The cost
    per token does not depend on how many came before.

    `prompt_token_ids` is what the sequence continues. Nothing of it is returned, but it decides
    whether the first space counts (SentencePiece adds one in front of a whole text), and a
    character that the prompt left unfinished is finished here.
    """

    __slots__ = ("_decoder", "_is_between", "_skipped", "_strip", "_vocab")

    def __init__(
        self,
        vocab: Vocab,
        *,
        skip_special_tokens: bool = True,
        prompt_token_ids: Sequence[int] = (),
    ) -> None:
        self._vocab = vocab
        self._skipped = vocab.special if skip_special_tokens else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tail = self._tail(prompt_token_ids)
        self._decoder.decode(tail)
        self._strip = vocab.strips_space and not tail
        self._is_between = self._is_between_characters()

    def push(self, token_ids: Sequence[int]) -> str:
        """Add tokens; the text that is settled by now and was not returned before."""
        if len(token_ids) == 1 and self._is_between:  # nearly always
            token_id = token_ids[0]
            text = "" if token_id in self._skipped else self._vocab.token_text(token_id)
            if text is not None:
                return text
        token_bytes, skipped = self._vocab.token_bytes, self._skipped
        data = b"".join([token_bytes(i) for i in token_ids if i not in skipped])
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        text = self._decoder.decode(data)
        self._is_between = self._is_between_characters()
        return text

    def flush(self) -> str:
        """No more tokens come: what is left of an unfinished character, as U+FFFD, or ""."""
        return self._decoder.decode(b"", final=True)

    def _is_between_characters(self) -> bool:
        """True if what was pushed so far has no say in the text of what comes."""
        held, _ = self._decoder.getstate()
        return not (held or self._strip)

    def _tail(self, token_ids: Sequence[int]) -> bytes:
        """The last bytes of a prompt, at least four if it has them: more than a character needs."""
        tail = b""
        for token_id in reversed(token_ids):
            if token_id not in self._skipped:
                tail = self._vocab.token_bytes(token_id) + tail
            if len(tail) >= 4:
                break
        return tail

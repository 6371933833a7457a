"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from octavo.errors import RequestError
from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.vocab import Vocab

if TYPE_CHECKING:
    import tokenizers

    from octavo.text.chat_template import ChatTemplate


class Tokenizer:
    """One model's tokenizer, whatever file it came from (hf.load_hf_tokenizer,
    gguf.gguf_tokenizer).

    `backend` splits text into ids and adds nothing of its own; `prefix_ids` and `suffix_ids` are
    what add_special_tokens puts around a text (a BOS token, as a rule). Encoding may be called from
    several threads. `eos_token_ids` are all the tokens that end an answer, the main one first.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        vocab: Vocab,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: tuple[int, ...] = (),
        prefix_ids: tuple[int, ...] = (),
        suffix_ids: tuple[int, ...] = (),
        chat_template: ChatTemplate | None = None,
    ) -> None:
        self._backend = backend
        self.vocab = vocab
        self.bos_token_id = bos_token_id
        self.eos_token_ids = eos_token_ids
        self.prefix_ids = prefix_ids
        self.suffix_ids = suffix_ids
        self.chat_template = chat_template

    @property
    def vocab_size(self) -> int:
        """Number of ids: every token id is below it (a model may have rows for more)."""
        return len(self.vocab)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text. Special tokens written in it become the special tokens.

        Raises RequestError for text that is not valid Unicode (a lone surrogate).
        """
        try:
            # encode() holds the interpreter's lock for seconds on a long text, encode_batch does
            # not.
            ids: list[int] = self._backend.encode_batch([text], add_special_tokens=False)[0].ids
        except (TypeError, UnicodeEncodeError):
            raise RequestError(_not_unicode(text)) from None
        if add_special_tokens and (self.prefix_ids or self.suffix_ids):
            return [*self.prefix_ids, *ids, *self.suffix_ids]
        return ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence; bytes that form no character come out as U+FFFD."""
        whole = IncrementalDetokenizer(self.vocab, skip_special_tokens=skip_special_tokens)
        return whole.push(list(token_ids)) + whole.flush()

    def detokenizer(
        self, skip_special_tokens: bool = True, prompt_token_ids: Sequence[int] = ()
    ) -> IncrementalDetokenizer:
        """A decoder for tokens that come a few at a time, after `prompt_token_ids`."""
        return IncrementalDetokenizer(
            self.vocab,
            skip_special_tokens=skip_special_tokens,
            prompt_token_ids=prompt_token_ids,
        )

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token, which may be a part of a character; b"" if there is
        none."""
        return self.vocab.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """The text of one token alone; parts of a character as U+FFFD, special tokens by name."""
        return self.vocab.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """True for the tokens that skip_special_tokens leaves out (BOS, EOS, <|im_start|>, ...)."""
        return token_id in self.vocab.special

    @cached_property
    def max_token_bytes(self) -> int:
        """Length in bytes of the longest token."""
        return max(
            map(self.vocab.token_bytes, range(len(self.vocab))), key=len, default=b""
        ).__len__()


def _not_unicode(text: object) -> str:
    if not isinstance(text, str):
        return f"expected text, got {type(text).__name__}"
    at = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return (
        f"expected valid Unicode text, got a lone surrogate U+{ord(text[at]):04X} "
        f"at character {at}; "
        "send the whole character (surrogates only in pairs)"
    )

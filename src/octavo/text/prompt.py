"""A prompt in either form the API takes."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import RequestError
from octavo.text.tokenizer import Tokenizer


def encode_prompt(
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    *,
    add_special_tokens: bool = True,
    num_ids: int | None = None,
) -> list[int]:
    """Token ids of a prompt: text is encoded, token ids are checked and taken as they are.

    `num_ids`: ids from 0 to num_ids - 1 exist (default: the tokenizer's; pass the model's number of
    embedding rows if it has more). Raises RequestError for a prompt without tokens or with an id
    that does not exist.
    """
    if isinstance(prompt, str):
        ids = tokenizer.encode(prompt, add_special_tokens)
    else:
        ids = list(prompt)
        limit = tokenizer.vocab_size if num_ids is None else num_ids
        for at, token_id in enumerate(ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int):
                raise RequestError(
                    f"prompt[{at}]: expected a token id, got {type(token_id).__name__}", "prompt"
                )
            if not 0 <= token_id < limit:
                raise RequestError(
                    f"prompt[{at}]: expected a token id from 0 to {limit - 1}, got {token_id}",
                    "prompt",
                )
    if not ids:
        raise RequestError("prompt: expected at least one token, got none", "prompt")
    return ids

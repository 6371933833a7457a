"""A tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.text import gguf_bpe, pretokenizers
from octavo.text.chat_template import ChatTemplate
from octavo.text.gguf_fields import PREFIX, Fields
from octavo.text.tokenizer import Tokenizer
from octavo.text.vocab import Vocab

if TYPE_CHECKING:
    import tokenizers

_MODELS = ("gpt2", "llama")

# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Tokens that end an answer in one model family or another, whatever eos_token_id says. Some files
# give them the type of a plain word; they are control tokens all the same.
_ENDINGS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>",
    "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "<|end_of_text|>",
    "<end_of_utterance>", "<｜end▁of▁sentence｜>",
)  # fmt: skip


def gguf_tokenizer(metadata: Mapping[str, object]) -> Tokenizer:
    """Build the tokenizer that the `tokenizer.*` keys of a GGUF file describe.

    Knows the models gpt2 (byte-level BPE with the pre-tokenizer named in tokenizer.ggml.pre) and
    llama (SentencePiece BPE with scores and byte fallback). Arrays may be any sequences. Raises
    UnsupportedModelError for another model or pre-tokenizer, MalformedModelError for keys that are
    missing, of the wrong type, or at odds with each other.
    """
    fields = Fields(metadata)
    model = fields.get("model")
    if model not in _MODELS:
        raise UnsupportedModelError(
            f"{PREFIX}model: expected one of {', '.join(_MODELS)}, got {model!r}; "
            "use a file whose tokenizer is one of these"
        )
    tokens = fields.strings("tokens")
    if not tokens:
        raise MalformedModelError(f"{PREFIX}tokens: expected at least one token, got none")
    types = _types(fields, tokens)
    if model == "gpt2":
        # Files from before tokenizer.ggml.pre existed mean "default".
        spec = pretokenizers.spec_for(str(fields.get("pre") or "default"))
        backend = gguf_bpe.byte_level(tokens, fields.strings("merges"), spec)
        add_bos, prefix_space = spec.add_bos, False
    else:
        scores = fields.numbers("scores", len(tokens))
        mergeable = [t in (NORMAL, UNUSED) for t in types]
        unknown = fields.token_id("unknown", len(tokens))
        add_bos, prefix_space = True, fields.flag("add_space_prefix", True)
        backend = gguf_bpe.sentencepiece(tokens, scores, mergeable, unknown, prefix_space)
    _add_tokens(backend, tokens, types)
    vocab = Vocab(
        _without_unused(tokens, types),
        style="byte_level" if model == "gpt2" else "sentencepiece",
        literal=frozenset(i for i, t in enumerate(types) if t == USER_DEFINED),
        special=frozenset(i for i, t in enumerate(types) if t in (CONTROL, UNKNOWN)),
        strips_space=prefix_space,
    )
    bos, eos = fields.token_id("bos", len(tokens)), fields.token_id("eos", len(tokens))
    return Tokenizer(
        backend,
        vocab,
        bos_token_id=bos,
        eos_token_ids=_eos_ids(fields, eos, tokens, types),
        prefix_ids=(bos,) if bos is not None and fields.flag("add_bos_token", add_bos) else (),
        suffix_ids=(eos,) if eos is not None and fields.flag("add_eos_token", False) else (),
        chat_template=_template(
            metadata,
            "" if bos is None else tokens[bos],
            "" if eos is None else tokens[eos],
        ),
    )


def _types(fields: Fields, tokens: Sequence[str]) -> list[int]:
    if fields.get("token_type") is None:
        types = [NORMAL] * len(tokens)
    else:
        types = [int(t) for t in fields.numbers("token_type", len(tokens))]
    for text in {*_ENDINGS} & {*tokens}:
        types[tokens.index(text)] = CONTROL
    return types


def _eos_ids(
    fields: Fields, eos: int | None, tokens: Sequence[str], types: Sequence[int]
) -> tuple[int, ...]:
    controls = {tokens[i]: i for i, t in enumerate(types) if t == CONTROL}
    ends = [eos, fields.token_id("eot", len(tokens)), fields.token_id("eom", len(tokens))]
    ends += [controls.get(text) for text in _ENDINGS]
    return tuple(dict.fromkeys(i for i in ends if i is not None))


def _template(metadata: Mapping[str, object], bos: str, eos: str) -> ChatTemplate | None:
    key = "tokenizer.chat_template"
    named = {k[len(key) + 1 :]: str(v) for k, v in metadata.items() if k.startswith(f"{key}.")}
    if key in metadata:
        named["default"] = str(metadata[key])
    return ChatTemplate(named, bos_token=bos, eos_token=eos) if named else None


def _add_tokens(backend: tokenizers.Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    """Let the control and user-defined tokens be found in text before anything else."""
    from tokenizers import AddedToken

    kinds = {CONTROL: True, UNKNOWN: True, USER_DEFINED: False}
    added = [
        AddedToken(text, special=kinds[kind], normalized=False)
        for text, kind in zip(tokens, types, strict=True)
        if kind in kinds and text
    ]
    backend.add_tokens(added)


def _without_unused(tokens: Sequence[str], types: Sequence[int]) -> Sequence[str | None]:
    """Ids that only pad the vocabulary stand for nothing."""
    if UNUSED not in types:
        return tokens
    return [None if t == UNUSED else s for s, t in zip(tokens, types, strict=True)]

"""A tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from octavo.errors import MalformedModelError, UnsupportedModelError
from octavo.text import gguf_bpe, pretokenizers
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer
from octavo.text.vocab import Vocab

if TYPE_CHECKING:
    import tokenizers

_KEY = "tokenizer.ggml."
_MODELS = ("gpt2", "llama")

# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Tokens that end an answer in one model family or another, whatever the eos_token_id says.
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
    model = metadata.get(f"{_KEY}model")
    if model not in _MODELS:
        raise UnsupportedModelError(
            f"{_KEY}model: expected one of {', '.join(_MODELS)}, got {model!r}; "
            "use a file whose tokenizer is one of these"
        )
    tokens = _strings(metadata, "tokens")
    if not tokens:
        raise MalformedModelError(f"{_KEY}tokens: expected at least one token, got none")
    types = _types(metadata, tokens)
    if model == "gpt2":
        # Files from before tokenizer.ggml.pre existed mean "default".
        spec = pretokenizers.spec_for(str(metadata.get(f"{_KEY}pre", "default")))
        backend = gguf_bpe.byte_level(tokens, _strings(metadata, "merges"), spec)
        add_bos, prefix_space = spec.add_bos, False
    else:
        add_bos, prefix_space = True, _flag(metadata, "add_space_prefix", True)
        scores = _scores(metadata, len(tokens))
        mergeable = [t in (NORMAL, UNUSED) for t in types]
        unknown = _token_id(metadata, "unknown", len(tokens))
        backend = gguf_bpe.sentencepiece(tokens, scores, mergeable, unknown, prefix_space)
    _add_tokens(backend, tokens, types)
    vocab = Vocab(
        _without_unused(tokens, types),
        style="byte_level" if model == "gpt2" else "sentencepiece",
        literal=frozenset(i for i, t in enumerate(types) if t == USER_DEFINED),
        special=frozenset(i for i, t in enumerate(types) if t in (CONTROL, UNKNOWN)),
        strips_space=prefix_space,
    )
    return _assemble(metadata, backend, vocab, tokens, types, add_bos)


def _assemble(
    metadata: Mapping[str, object],
    backend: tokenizers.Tokenizer,
    vocab: Vocab,
    tokens: Sequence[str],
    types: Sequence[int],
    add_bos: bool,
) -> Tokenizer:
    bos = _token_id(metadata, "bos", len(tokens))
    eos = _token_id(metadata, "eos", len(tokens))
    ends = [eos, _token_id(metadata, "eot", len(tokens)), _token_id(metadata, "eom", len(tokens))]
    controls = {tokens[i]: i for i, t in enumerate(types) if t == CONTROL}
    ends += [controls.get(text) for text in _ENDINGS]
    prefix = (bos,) if bos is not None and _flag(metadata, "add_bos_token", add_bos) else ()
    suffix = (eos,) if eos is not None and _flag(metadata, "add_eos_token", False) else ()
    return Tokenizer(
        backend,
        vocab,
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(i for i in ends if i is not None)),
        prefix_ids=prefix,
        suffix_ids=suffix,
        chat_template=_template(
            metadata,
            "" if bos is None else tokens[bos],
            "" if eos is None else tokens[eos],
        ),
    )


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


def _array(metadata: Mapping[str, object], name: str) -> list[object] | None:
    value = metadata.get(f"{_KEY}{name}")
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise MalformedModelError(f"{_KEY}{name}: expected an array, got {type(value).__name__}")
    return list(value)


def _strings(metadata: Mapping[str, object], name: str) -> list[str]:
    values = _array(metadata, name)
    if values is None:
        raise MalformedModelError(f"{_KEY}{name}: expected an array of strings, it is missing")
    for at, value in enumerate(values):
        if isinstance(value, bytes):
            values[at] = value.decode("utf-8", "replace")
        elif not isinstance(value, str):
            raise MalformedModelError(
                f"{_KEY}{name}[{at}]: expected a string, got {type(value).__name__}"
            )
    return values  # type: ignore[return-value]


def _types(metadata: Mapping[str, object], tokens: Sequence[str]) -> list[int]:
    values = _array(metadata, "token_type")
    if values is None:
        return [NORMAL] * len(tokens)
    _same_length("token_type", values, len(tokens))
    return [int(v) if int(v) in range(1, 7) else NORMAL for v in values]  # type: ignore[call-overload]


def _scores(metadata: Mapping[str, object], count: int) -> list[float]:
    values = _array(metadata, "scores")
    if values is None:
        raise MalformedModelError(f"{_KEY}scores: expected an array of numbers, it is missing")
    _same_length("scores", values, count)
    return [float(v) for v in values]  # type: ignore[arg-type]


def _same_length(name: str, values: Sequence[object], count: int) -> None:
    if len(values) != count:
        raise MalformedModelError(
            f"{_KEY}{name}: expected {count} entries, one per token, got {len(values)}"
        )


def _flag(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    value = metadata.get(f"{_KEY}{name}")
    return default if value is None else bool(value)


def _token_id(metadata: Mapping[str, object], name: str, count: int) -> int | None:
    value = metadata.get(f"{_KEY}{name}_token_id")
    if value is None:
        return None
    token_id = int(value)  # type: ignore[call-overload]
    if not 0 <= token_id < count:
        # Writers put 2^32 - 1 (or -1) for "none".
        if token_id in (-1, 2**32 - 1):
            return None
        raise MalformedModelError(
            f"{_KEY}{name}_token_id: expected an id below {count}, got {token_id}"
        )
    return int(token_id)

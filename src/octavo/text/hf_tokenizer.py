"""A tokenizer from a directory in Hugging Face layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import MalformedModelError, ModelNotFoundError
from octavo.text.hf_files import read_chat_template, read_json, token_content
from octavo.text.hf_vocab import read_vocab
from octavo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers


def load_hf_tokenizer(directory: Path) -> Tokenizer:
    """Read tokenizer.json and what stands beside it.

    tokenizer_config.json, special_tokens_map.json and generation_config.json give BOS, EOS and what
    is added around a text; the chat template comes from chat_template.jinja, chat_template.json or
    tokenizer_config.json. Only tokenizer.json must be there. Raises ModelNotFoundError,
    MalformedModelError naming the file, or UnsupportedModelError.
    """
    directory = Path(directory)
    backend = _backend(directory / "tokenizer.json")
    config = {
        **read_json(directory / "special_tokens_map.json"),
        **read_json(directory / "tokenizer_config.json"),
    }
    _add_declared_tokens(backend, config)
    vocab = read_vocab(backend)
    bos, eos = token_content(config.get("bos_token")), token_content(config.get("eos_token"))
    bos_id, eos_id = _id(backend, bos), _id(backend, eos)
    prefix, suffix = _affixes(backend)
    if isinstance(config.get("add_bos_token"), bool):
        prefix = (bos_id,) if config["add_bos_token"] and bos_id is not None else ()
    if isinstance(config.get("add_eos_token"), bool):
        suffix = (eos_id,) if config["add_eos_token"] and eos_id is not None else ()
    return Tokenizer(
        backend,
        vocab,
        bos_token_id=bos_id,
        eos_token_ids=_eos_ids(directory, eos_id),
        prefix_ids=prefix,
        suffix_ids=suffix,
        chat_template=read_chat_template(directory, config),
    )


def _backend(path: Path) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as Backend

    if not path.is_file():
        raise ModelNotFoundError(
            f"{path}: expected a tokenizer.json beside the weights, found none; "
            "save the model's fast tokenizer there (save_pretrained)"
        )
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise MalformedModelError(f"{path}: not a tokenizer that can be read: {error}") from None
    # These would cut or pad every text; a server wants it whole.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _id(backend: tokenizers.Tokenizer, token: str | None) -> int | None:
    if token is None:
        return None
    found: int | None = backend.token_to_id(token)
    return found


def _add_declared_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
    """tokenizer_config.json may declare tokens that tokenizer.json does not mark as added."""
    from tokenizers import AddedToken

    declared = config.get("added_tokens_decoder")
    if not isinstance(declared, Mapping):
        return
    known = backend.get_added_tokens_decoder()
    if not all(key.isdecimal() and isinstance(entry, Mapping) for key, entry in declared.items()):
        raise MalformedModelError(
            "tokenizer_config.json: added_tokens_decoder: expected objects by token id"
        )
    for key, entry in sorted(declared.items(), key=lambda item: int(item[0])):
        text = token_content(entry)
        if text is None or int(key) in known or _id(backend, text) not in (int(key), None):
            continue
        if _id(backend, text) is None and int(key) != backend.get_vocab_size():
            continue  # it would get another id than the declared one
        special = bool(entry.get("special"))
        backend.add_tokens([AddedToken(text, special=special, normalized=False)])


def _affixes(backend: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the file's own post-processor puts before and after a text."""
    bare = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _eos_ids(directory: Path, eos_id: int | None) -> tuple[int, ...]:
    """The tokenizer's EOS first, then the ones that generation_config.json adds.

    config.json is asked only when neither knows one.
    """
    ids = [] if eos_id is None else [eos_id]
    for name in ("generation_config.json", "config.json"):
        if name == "config.json" and ids:
            break
        value = read_json(directory / name).get("eos_token_id")
        ids += [i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)]
    return tuple(dict.fromkeys(ids))

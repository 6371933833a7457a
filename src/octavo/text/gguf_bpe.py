"""The two kinds of BPE that GGUF files hold, built with the tokenizers library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octavo.errors import MalformedModelError
from octavo.text import pretokenizers
from octavo.text.vocab import SPACE_MARK

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import models

_Merge = tuple[str, str]


def byte_level(
    tokens: Sequence[str], merges: Sequence[str], spec: pretokenizers.PreTokenizerSpec
) -> tokenizers.Tokenizer:
    """GPT-2's BPE over bytes. `merges` are "left right", the strongest first."""
    from tokenizers import Tokenizer, normalizers

    backend = Tokenizer(_bpe(tokens, [_pair(m) for m in merges], ignore_merges=spec.ignore_merges))
    backend.pre_tokenizer = pretokenizers.build(spec)
    if spec.nfc:
        backend.normalizer = normalizers.NFC()
    return backend


def sentencepiece(
    tokens: Sequence[str],
    scores: Sequence[float],
    mergeable: Sequence[bool],
    unknown_id: int | None,
    prefix_space: bool,
) -> tokenizers.Tokenizer:
    """SentencePiece's BPE: whole text at once, the pair whose piece scores highest merges first.

    `mergeable[i]`: piece i may come out of a merge (not a control, byte or user-defined piece).
    Characters that are no piece fall back to their bytes. `prefix_space`: a text gets a space in
    front, as does what follows a special token.
    """
    from tokenizers import Tokenizer, normalizers

    unknown = None if unknown_id is None else tokens[unknown_id]
    merges = merges_by_score(tokens, scores, mergeable)
    backend = Tokenizer(_bpe(tokens, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    if prefix_space:
        steps.insert(0, normalizers.Prepend(SPACE_MARK))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def merges_by_score(
    tokens: Sequence[str], scores: Sequence[float], mergeable: Sequence[bool]
) -> list[_Merge]:
    """Every way to put a piece together from two pieces, ordered by the score of the whole.

    SentencePiece keeps scores where BPE wants ranked pairs. Ways to the same piece are equally good
    there; here the one with the older (lower) parts comes first.
    """
    ids = {t: i for i, t in enumerate(tokens) if mergeable[i]}
    ranked: list[tuple[float, int, int, _Merge]] = []
    for whole, i in ids.items():
        for cut in range(1, len(whole)):
            left, right = whole[:cut], whole[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[i], ids[left], ids[right], (left, right)))
    ranked.sort()
    return [pair for *_, pair in ranked]


def _pair(merge: str) -> _Merge:
    # The left part has at least one character, which may itself be a space.
    cut = merge.find(" ", 1)
    if cut < 0 or cut + 1 == len(merge):
        raise MalformedModelError(
            f"tokenizer.ggml.merges: expected two parts with a space between, got {merge!r}"
        )
    return merge[:cut], merge[cut + 1 :]


def _bpe(tokens: Sequence[str], merges: list[_Merge], **options: Any) -> models.BPE:
    from tokenizers import models

    ids = {t: i for i, t in enumerate(tokens)}
    try:
        return models.BPE(ids, merges, **options)
    except Exception:  # the library raises bare Exception: a merge names a token that is not there
        known = [m for m in merges if m[0] in ids and m[1] in ids and m[0] + m[1] in ids]
        return models.BPE(ids, known, **options)

"""How byte-level BPE vocabularies cut text into words, by the name in tokenizer.ggml.pre.

The name stands for the pre-tokenizer of the model's own tokenizer.json; a vocabulary works only
with the one it was trained with. Each entry is a list of patterns, applied one after the other:
what a pattern matches becomes a word, what lies between matches is left to the next pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.errors import UnsupportedModelError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ASCII_PUNCT = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"


def _words(digits: str, letters: str = r"\p{L}", marks: str = "") -> str:
    """The cl100k pattern: `digits` is how many make a word, `marks` joins letters in words."""
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|\p{{N}}{digits}"
        rf"| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


def _cased_words(digits: str, suffix: str) -> str:
    """The o200k pattern: a word is some upper case, then some lower case."""
    first = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{first}{_UPPER}*{_LOWER}+{suffix}|{first}{_UPPER}+{_LOWER}*{suffix}|\p{{N}}{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


@dataclass(frozen=True, slots=True)
class PreTokenizerSpec:
    """Patterns, and what else the name implies.

    `ignore_merges`: a word that is a token as a whole is taken without merging. `add_bos`: a BOS
    token is added unless the file says otherwise. `nfc`: the model's tokenizer composes characters
    (Unicode NFC) before anything else.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    nfc: bool = False


_DEFAULT = PreTokenizerSpec((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_PLAIN = PreTokenizerSpec((_GPT2,))
_DIGITS = PreTokenizerSpec((_DIGIT, _GPT2))
_LLAMA3 = PreTokenizerSpec((_words("{1,3}"),), ignore_merges=True, add_bos=True)
_CL100K = PreTokenizerSpec((_words("{1,3}"),))
_ONE_DIGIT = PreTokenizerSpec((_words(""),))
_QWEN2 = PreTokenizerSpec((_words(""),), nfc=True)
_QWEN35 = PreTokenizerSpec((_words("", r"[\p{L}\p{M}]", r"\p{M}"),), nfc=True)
_TEKKEN = PreTokenizerSpec((_cased_words("", ""),), ignore_merges=True, add_bos=True)
_O200K = PreTokenizerSpec((_cased_words("{1,3}", f"{_CONTRACTION}?"),))
_FALCON = PreTokenizerSpec((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"))
_DEEPSEEK_CODER = PreTokenizerSpec(
    ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", _DIGIT)
)
_DEEPSEEK_V3 = PreTokenizerSpec(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        rf"{_ASCII_PUNCT}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
    )
)

_NAMES: tuple[tuple[PreTokenizerSpec, str], ...] = (
    (_DEFAULT, "default"),
    (_PLAIN, "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 a.x-4.0 mellum gigachat"),
    (_DIGITS, "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2"),
    (_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"),
    (_CL100K, "dbrx smaug-bpe"),
    (_ONE_DIGIT, "deepseek-r1-qwen stablelm2 hunyuan solar-open megrez grok-2 kormo f2llmv2"),
    (_QWEN2, "qwen2"),
    (_QWEN35, "qwen35"),
    (_TEKKEN, "tekken"),
    (_O200K, "gpt-4o llama4 kanana2"),
    (_FALCON, "falcon"),
    (_DEEPSEEK_CODER, "deepseek-coder"),
    (_DEEPSEEK_V3, "deepseek-v3 hunyuan-dense"),
)
SPECS: dict[str, PreTokenizerSpec] = {n: spec for spec, names in _NAMES for n in names.split()}


def spec_for(name: str) -> PreTokenizerSpec:
    """The pre-tokenizer of that name. Raises UnsupportedModelError listing the known names."""
    if name not in SPECS:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre: unknown pre-tokenizer {name!r}; "
            f"known are {', '.join(sorted(SPECS))}"
        )
    return SPECS[name]


def build(spec: PreTokenizerSpec) -> PreTokenizer:
    """The pre-tokenizer as an object of the tokenizers library, ending in the byte alphabet."""
    from tokenizers import Regex, pre_tokenizers

    steps: list[PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in spec.patterns
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)

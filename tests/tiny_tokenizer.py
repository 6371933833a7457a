"""A byte-level BPE tokenizer of a few hundred tokens, trained on the sentences below. Deterministic."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1, 2: padding and document border, start of a turn, end of a turn (the eos token)."""

EOS_ID = 2

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CORPUS = (
    "The octavo was folded three times, and the sheet gave sixteen pages to the binder.",
    "A block of memory holds sixteen tokens; a table of blocks holds the whole conversation.",
    "When the pool is full, the coldest block is the one that has to leave.",
    "She asked the librarian where the older books were kept, and he answered with a smile.",
    "def schedule(self, now):\n    for request in self.running:\n        yield request.tokens\n",
    "Numbers such as 12, 345 and 6789 appear in tables; 3.14159 appears in circles.",
    "Der Drucker legte das Papier in die Presse, während der Lehrling die Farbe mischte.",
    "Les pages sont numérotées; l'été, la bibliothèque reste ouverte jusqu'à huit heures.",
    "本は十六ページに折られました。図書館で本を読みます。",
    "کتاب‌ها روی میز هستند و می‌خواهم آن‌ها را بخوانم.",
    "Family 👨‍👩‍👧‍👦 and flags 🇳🇱🇯🇵 come through, byte by byte 🎉.",
    "The server answers many users at once, each with a story, a question or a poem of its own.",
)


@cache
def _trained(vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    missing = vocab_size - tokenizer.get_vocab_size()
    extra = [AddedToken(f"<|extra_{i}|>", normalized=False) for i in range(missing)]
    tokenizer.add_tokens(extra)
    return tokenizer.to_str()


def tiny_tokenizer(vocab_size: int) -> Tokenizer:
    """A tokenizer of exactly `vocab_size` tokens: special ones, the bytes, merges, and fillers if need be."""
    least = len(SPECIAL) + 256
    if vocab_size < least:
        raise ValueError(f"expected a vocabulary of at least {least}, got {vocab_size}")
    return Tokenizer.from_str(_trained(vocab_size))


def write_tokenizer(directory: Path, vocab_size: int) -> None:
    """tokenizer.json and tokenizer_config.json as Hugging Face's libraries expect them."""
    tiny_tokenizer(vocab_size).save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[EOS_ID],
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def gguf_vocabulary(vocab_size: int) -> tuple[list[str], list[int], list[str]]:
    """tokens, token types and merges for a GGUF file with `tokenizer.ggml.model` gpt2."""
    description = json.loads(_trained(vocab_size))
    ids = tiny_tokenizer(vocab_size).get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])
    types = [1] * vocab_size
    for token in description["added_tokens"]:
        types[token["id"]] = 3 if token["special"] else 4
    merges = [m if isinstance(m, str) else " ".join(m) for m in description["model"]["merges"]]
    return tokens, types, merges

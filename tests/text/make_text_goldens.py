"""Write goldens.json: token ids of the default model's tokenizer as llama.cpp's server gives them.

llama-server -m SmolLM2-135M-Instruct.Q4_1.gguf -c 512 --port 8190
PYTHONPATH=. python tests/text/make_text_goldens.py http://127.0.0.1:8190
"""

from __future__ import annotations

import json
import random
import sys
import urllib.request
from pathlib import Path

from tests.text.vocabularies import HARD_TEXTS

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "It's 2024-11-05, 3.14159 and 1,234,567; half is ½, x² and Ⅷ.",
    "I'll, we've, they'd, can't, DON'T, 'tis",
    "def f(x):\n    return {\n\t'a': [x**2 for _ in range(10)],\n    }\n\n\n# done\r\n",
    "for (int i = 0; i < n; ++i) { std::cout << v[i] << '\\n'; }",
    "SELECT * FROM t WHERE a >= 10 AND b != 'x';",
    "a  b   c    d     e\t\tf \n \n\n  g",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "no <|im_end|>space<|endoftext|> <|im_start|>",
    "Straße, naïve, Ünïcödé, ÅNGSTRÖM, ő",
    "Быстрая коричневая лиса 123",
    "مرحبا بالعالم ١٢٣، كيف الحال؟",
    "नमस्ते दुनिया, ไทย ภาษา, ქართული",
    "\u00a0non-breaking\u3000ideographic\u2003em",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=====-----_____",
    "==  ==\n = Title = \n\n Robert <unk> is an English actor @-@ known",
    " ",
    "\n\n\n",
    *HARD_TEXTS,
)
_CHARS = [
    *"abc ABC 012\n\t'.,-= ",
    "é",
    "ß",
    "Ж",
    "ا",
    "\u200c",
    "汉",
    "👍",
    "\u200d",
    "한",
    "²",
    "न",
]


def texts() -> list[str]:
    """The texts above, and forty of characters drawn at random (always the same)."""
    draw = random.Random(7)
    mixed = ["".join(draw.choices(_CHARS, k=draw.randint(5, 40))) for _ in range(40)]
    return [*dict.fromkeys([*TEXTS, *mixed])]


def tokenize(url: str, text: str) -> list[int]:
    body = {"content": text, "add_special": True, "parse_special": True}
    request = urllib.request.Request(
        f"{url}/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        ids: list[int] = json.load(response)["tokens"]
    return ids


if __name__ == "__main__":
    pairs = [[text, tokenize(sys.argv[1], text)] for text in texts()]
    lines = ",\n".join(
        json.dumps(pair, ensure_ascii=False, separators=(",", ":")) for pair in pairs
    )
    Path(__file__).with_name("goldens.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")

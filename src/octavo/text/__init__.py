"""Text to token ids and back: tokenizers, streaming decode, stop strings, chat templates."""

from octavo.text.chat_template import ChatTemplate
from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.gguf_tokenizer import gguf_tokenizer
from octavo.text.hf_tokenizer import load_hf_tokenizer
from octavo.text.prompt import encode_prompt
from octavo.text.stop import StopStrings
from octavo.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "IncrementalDetokenizer",
    "StopStrings",
    "Tokenizer",
    "encode_prompt",
    "gguf_tokenizer",
    "load_hf_tokenizer",
]

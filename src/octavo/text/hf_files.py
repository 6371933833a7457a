"""The small files beside a tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.errors import MalformedModelError
from octavo.text.chat_template import ChatTemplate


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, {} if there is no such file. Raises MalformedModelError."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MalformedModelError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedModelError(f"{path}: expected an object, got {type(value).__name__}")
    return value


def token_content(token: object) -> str | None:
    """A token is written as a string, or as an object with its content; None if it is neither."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def read_chat_template(directory: Path, config: Mapping[str, Any]) -> ChatTemplate | None:
    """The model's chat templates, None if it has none.

    Later ones win: tokenizer_config.json (`config`), chat_template.json, chat_template.jinja; named
    ones lie in a list in the first two or in additional_chat_templates/NAME.jinja.
    """
    named = _sources("tokenizer_config.json", config)
    named |= _sources("chat_template.json", read_json(directory / "chat_template.json"))
    for path in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        named[path.stem] = _read_text(path)
    if (path := directory / "chat_template.jinja").is_file():
        named["default"] = _read_text(path)
    if not named:
        return None
    keys = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
    tokens = {key: text for key in keys if (text := token_content(config.get(key)))}
    return ChatTemplate(
        named, tokens.pop("bos_token", ""), tokens.pop("eos_token", ""), special_tokens=tokens
    )


def _sources(file: str, config: Mapping[str, Any]) -> dict[str, str]:
    value = config.get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    entries = value if isinstance(value, list) else [value]
    named: dict[str, str] = {}
    for entry in entries:
        match entry:
            case {"name": str(name), "template": str(template)}:
                named[name] = template
            case _:
                raise MalformedModelError(
                    f"{file}: chat_template: expected a string or a list of names and templates"
                )
    return named


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MalformedModelError(f"{path}: not UTF-8 text: {error}") from None

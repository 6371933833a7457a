"""Request fields that are more than one JSON type, checked with messages a user can act on.

A check raises PydanticCustomError; `parse.py` turns it into the API's error with the field's path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from octavo.request import MAX_STOP_LENGTH

MAX_STOP_STRINGS = 16
MAX_PROMPTS = 1024

Prompts = Sequence[str | list[int]]
Content = str | list[dict[str, Any]]


def fail(message: str, kind: str = "invalid") -> NoReturn:
    """Refuse a field; `kind` is 'invalid' or 'unsupported'."""
    raise PydanticCustomError(kind, "{message}", {"message": message})


def shown(value: object) -> str:
    """A value as JSON would write it, with its type, short enough for a message."""
    names = {
        dict: "an object", list: "an array", str: "a string", bool: "a boolean",
        int: "an integer", float: "a number", type(None): "null",
    }  # fmt: skip
    name = names.get(type(value), type(value).__name__)
    if value is None or isinstance(value, dict):
        return name
    if isinstance(value, list):
        return f"{name} of {len(value)} items"
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return f"{name}: {text if len(text) <= 60 else text[:57] + '...'}"


def _token_ids(value: list[Any], where: str) -> list[int]:
    if set(map(type, value)) - {int}:
        i = next(i for i, x in enumerate(value) if type(x) is not int)
        fail(f"expected token ids (integers), got {shown(value[i])} at {where}[{i}]")
    return value


def check_prompt(value: object) -> Prompts:
    """A text, texts, token ids or lists of them -> list of prompts."""
    expected = "expected a string, an array of strings, token ids, or an array of token-id arrays"
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        fail(f"{expected}; got {shown(value)}")
    if not value:
        fail(f"{expected}; got an empty array. Send at least one token or text")
    first = value[0]
    if isinstance(first, int):
        return [_token_ids(value, "prompt")]
    if len(value) > MAX_PROMPTS:
        fail(f"expected at most {MAX_PROMPTS} prompts in one request, got {len(value)}; split it")
    if not isinstance(first, str | list):
        fail(f"{expected}; got {shown(first)} at prompt[0]")
    for i, item in enumerate(value):
        if type(item) is not type(first):
            fail(f"expected all prompts of one type, got {shown(item)} at prompt[{i}]")
        if isinstance(item, list):
            _token_ids(item, f"prompt[{i}]")
    return value


def check_stop(value: object) -> tuple[str, ...]:
    """A string or a list of strings -> tuple; null is none."""
    if value is None:
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        fail(f"expected a string or an array of strings, got {shown(value)}")
    if len(items) > MAX_STOP_STRINGS:
        fail(f"expected at most {MAX_STOP_STRINGS} stop strings, got {len(items)}")
    for i, item in enumerate(items):
        if not isinstance(item, str):
            fail(f"expected a string, got {shown(item)} at stop[{i}]")
        if not item:
            fail(f"expected a stop string of at least one character, got '' at stop[{i}]")
    return tuple(items)


def check_logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """{"token id": bias from -100 to 100} -> sorted pairs."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        fail(f"expected an object of token id to bias, got {shown(value)}")
    pairs = []
    for key, bias in value.items():
        if not (key.isascii() and key.isdigit()):
            fail(f"expected token ids as keys, got {key[:40]!r}")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            fail(f"expected a bias from -100 to 100 for token {key}, got {shown(bias)}")
        pairs.append((int(key), float(bias)))
    return tuple(sorted(pairs))


def check_content(value: object) -> Content:
    """A message's content: a string, or text parts; null is empty."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        fail(f"expected a string or an array of content parts, got {shown(value)}")
    for i, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            fail(f"expected a content part with a `type`, got {shown(part)} at part {i}")
        if kind not in ("text", "refusal"):
            message = f"content part {i} has type {kind[:40]!r}; only 'text' parts are supported"
            fail(message + ", put what it says in one", "unsupported")
        if not isinstance(part.get(kind), str):
            fail(f"expected a string in `{kind}` of part {i}, got {shown(part.get(kind))}")
    return value


def check_early_stopping(value: object) -> bool | Literal["never"] | None:
    """True, false or "never"; null: left out."""
    if value is None or isinstance(value, bool):
        return value
    if value != "never":
        fail(f"expected true, false or 'never', got {shown(value)}")
    return "never"


_STRING = {"type": "string"}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_LENGTH}
_STOPS = {"type": "array", "items": _STOP, "maxItems": MAX_STOP_STRINGS}
_PARTS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": _STRING},
        "required": ["type", "text"],
    },
}


def _any_of(*schemas: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(schemas)})


PromptField = Annotated[
    Prompts,
    PlainValidator(check_prompt),
    _any_of(_STRING, {"type": "array", "items": _STRING}, _IDS, {"type": "array", "items": _IDS}),
]
StopField = Annotated[
    tuple[str, ...], PlainValidator(check_stop), _any_of(_STOP, _STOPS, {"type": "null"})
]
LogitBiasField = Annotated[
    tuple[tuple[int, float], ...],
    PlainValidator(check_logit_bias),
    _any_of({"type": "object", "additionalProperties": {"type": "number"}}, {"type": "null"}),
]
EarlyStoppingField = Annotated[
    bool | Literal["never"] | None,
    PlainValidator(check_early_stopping),
    _any_of({"type": "boolean"}, {"const": "never", "type": "string"}, {"type": "null"}),
]
ContentField = Annotated[
    Content, PlainValidator(check_content), _any_of(_STRING, _PARTS, {"type": "null"})
]

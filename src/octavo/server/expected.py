"""What a field takes, in words, from the schema of its body."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_NOUNS = {
    "integer": "an integer",
    "number": "a finite number",
    "boolean": "true or false",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
_SIZES = {
    "minItems": "at least {} item(s)",
    "maxItems": "at most {} items",
    "minLength": "at least {} character(s)",
    "maxLength": "at most {} characters",
}


@cache
def _schema(kind: type[BaseModel]) -> Schema:
    return kind.model_json_schema()


def expected(kind: type[BaseModel], loc: Sequence[int | str]) -> str:
    """'an integer of at least 1 and at most 128' for the field at `loc` of a body."""
    whole = _schema(kind)
    node: Schema | None = whole
    for part in loc:
        node = node and _step(_options(node, whole), part)
    if node is None:
        return "another value"
    kinds = [o for o in _options(node, whole) if o.get("type") != "null"]
    return " or ".join(map(_words, kinds)) or "null"


def _options(node: Schema, whole: Schema) -> list[Schema]:
    found = []
    for option in node.get("anyOf", [node]):
        ref = option.get("$ref")
        found.append(whole["$defs"][ref.rsplit("/", 1)[1]] if ref else option)
    return found


def _step(options: list[Schema], part: int | str) -> Schema | None:
    for option in options:
        inside = option.get("properties", {}).get(part)
        if isinstance(part, int):
            inside = option.get("items")
        elif inside is None and isinstance(option.get("additionalProperties"), dict):
            inside = option["additionalProperties"]
        if inside is not None:
            found: Schema = inside
            return found
    return None


def _words(node: Schema) -> str:
    if "enum" in node:
        return "one of " + ", ".join(map(repr, node["enum"]))
    bounds = [f"{word} {node[key]}" for key, word in _BOUNDS.items() if key in node]
    sizes = [text.format(node[key]) for key, text in _SIZES.items() if key in node]
    words = _NOUNS.get(node.get("type", ""), "another value")
    if bounds:
        words += " of " + " and ".join(bounds)
    if sizes:
        words += " of " + " and ".join(sizes)
    return words

"""Checked reading of the tokenizer.ggml.* keys of a GGUF file."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from octavo.errors import MalformedModelError

PREFIX = "tokenizer.ggml."
_NONE_IDS = (-1, 2**32 - 1)  # what writers put for "no such token"


class Fields:
    """The keys by their short names; each method raises MalformedModelError naming the key."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata

    def get(self, name: str) -> Any:
        """The value as it is, None if the key is missing."""
        return self._metadata.get(f"{PREFIX}{name}")

    def strings(self, name: str) -> list[str]:
        """An array of strings that must be there."""
        values = self._array(name, "strings")
        for at, value in enumerate(values):
            if isinstance(value, bytes):
                values[at] = value.decode("utf-8", "replace")
            elif not isinstance(value, str):
                raise _malformed(f"{name}[{at}]", "a string", type(value).__name__)
        return values

    def numbers(self, name: str, count: int) -> list[float]:
        """An array of `count` numbers, one per token, that must be there."""
        values = self._array(name, "numbers")
        if len(values) != count:
            raise _malformed(name, f"{count} entries, one per token", str(len(values)))
        try:
            return [float(v) for v in values]
        except (TypeError, ValueError):
            raise _malformed(name, "an array of numbers", "something else among them") from None

    def flag(self, name: str, default: bool) -> bool:
        """True or false, `default` if the key is missing."""
        value = self.get(name)
        if value is None:
            return default
        if value not in (True, False):
            raise _malformed(name, "true or false", repr(value))
        return bool(value)

    def token_id(self, name: str, count: int) -> int | None:
        """The id at `name`_token_id, below `count`; None if there is no such token."""
        key = f"{name}_token_id"
        value = self.get(key)
        if value is None:
            return None
        try:
            token_id = operator.index(value)
        except TypeError:
            raise _malformed(key, "an integer", repr(value)) from None
        if token_id in _NONE_IDS:
            return None
        if not 0 <= token_id < count:
            raise _malformed(key, f"an id below {count}", str(token_id))
        return token_id

    def _array(self, name: str, kind: str) -> list[Any]:
        value = self.get(name)
        if value is None:
            raise MalformedModelError(f"{PREFIX}{name}: expected an array of {kind}, it is missing")
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise _malformed(name, f"an array of {kind}", type(value).__name__)
        return list(value)


def _malformed(name: str, expected: str, got: str) -> MalformedModelError:
    return MalformedModelError(f"{PREFIX}{name}: expected {expected}, got {got}")

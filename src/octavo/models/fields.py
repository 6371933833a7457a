"""Typed look-ups in a model's settings, whoever wrote the file: each value is checked and named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from octavo.errors import MalformedModelError


class Fields:
    """A mapping of settings with its origin. Every getter raises MalformedModelError naming the key.

    A key that is missing or null counts as absent: the default is given back, or, with no default, refused.
    """

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values = values
        self.source = source

    def has(self, key: str) -> bool:
        """True if the key is there and not null."""
        return self.values.get(key) is not None

    def fail(self, key: str, expected: str, got: object) -> MalformedModelError:
        """The error for a value that cannot be: says what was expected and what came."""
        shown = repr(got)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return MalformedModelError(f"{self.source}: {key}: expected {expected}, got {shown}")

    def integer(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = 2**31
    ) -> int:
        """A whole number from `low` to `high`."""
        value = self._get(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(key, f"a whole number from {low} to {high}", value)
        return value

    def number(
        self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12
    ) -> float:
        """A finite number above `low` and up to `high`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, "a number", value)
        if not (math.isfinite(value) and low < value <= high):
            raise self.fail(key, f"a number above {low:g} and up to {high:g}", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.fail(key, "a string", value)
        return value

    def table(self, key: str) -> Fields | None:
        """A nested mapping, or None if absent."""
        if not self.has(key):
            return None
        value = self.values[key]
        if not isinstance(value, Mapping):
            raise self.fail(key, "an object", value)
        return Fields(value, f"{self.source}: {key}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise MalformedModelError(f"{self.source}: {key} is missing")
        return default

"""What a chat template may cost: limits on output, loops and products."""

from __future__ import annotations

from typing import Any

MAX_OUTPUT_CHARS = 16 * 2**20
MAX_RANGE_ITEMS = 1_000_000  # per rendering, all range() calls together
_MAX_BITS = 4096


class LimitExceeded(Exception):
    """A template that asks for more than a prompt can need."""


class Range:
    """range() with a budget over one whole rendering, so that nested loops end."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_ITEMS

    def __call__(self, *args: int) -> range:
        """As range() does. Raises LimitExceeded beyond the budget."""
        items = range(*args)
        self._left -= len(items)
        if self._left < 0:
            raise LimitExceeded(f"more than {MAX_RANGE_ITEMS} steps of range()")
        return items


def check_operation(operator: str, left: Any, right: Any) -> None:
    """Raise LimitExceeded if `left * right` or `left ** right` would be too large to keep."""
    if operator == "*":
        if isinstance(left, int):
            left, right = right, left
        if isinstance(left, str | bytes | list | tuple) and isinstance(right, int):
            too_large = len(left) * right > MAX_OUTPUT_CHARS
        else:
            too_large = _bits(left) + _bits(right) > _MAX_BITS
    else:
        too_large = isinstance(right, int) and _bits(left) * abs(right) > _MAX_BITS
    if too_large:
        raise LimitExceeded(f"the result of {operator} is too large")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0

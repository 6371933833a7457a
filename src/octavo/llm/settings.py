"""Flat keyword settings -> the frozen dataclasses of config.py."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from octavo.config import CacheConfig, DeviceConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError, RequestError

_FLAG = re.compile(r"--(?:no-)?([a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?: (\w+))?")
_SECTIONS: dict[str, type[Any]] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "device": DeviceConfig,
}
_FIELDS = {f.name: f for cls in _SECTIONS.values() for f in dataclasses.fields(cls)}


def engine_config(settings: Mapping[str, Any]) -> EngineConfig:
    """Settings under their field names, in any mix of sections; what is left out keeps its default.

    Raises ConfigError for an unknown name (with names like it), a wrong type, a value out of range.
    """
    left = dict(settings)
    sections = {name: section(cls, left) for name, cls in _SECTIONS.items()}
    if left:
        raise ConfigError(_unknown(next(iter(left))))
    return EngineConfig(**sections)


def section(cls: type[Any], settings: dict[str, Any]) -> Any:
    """An instance of the config dataclass `cls`, its fields taken out of `settings`."""
    types = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        if field.name in settings:
            value = settings.pop(field.name)
            parse = field.metadata.get("parse")
            if parse is not None and isinstance(value, str):
                value = _parsed(field.name, value, parse)
            values[field.name] = _typed(field.name, value, types[field.name])
    return cls(**values)


def _parsed(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"--{name.replace('_', '-')}: {error}", name) from None


def _typed(name: str, value: Any, wanted: Any) -> Any:
    """`value` if it is of the type that the field declares. Raises ConfigError."""
    kinds = typing.get_args(wanted) or (wanted,)
    if typing.get_origin(wanted) is tuple:
        kinds = (tuple,)
    if isinstance(value, bool):
        ok = bool in kinds
    elif isinstance(value, typing.cast(Any, kinds)):
        ok = True
    elif str in kinds and hasattr(value, "__fspath__"):
        return str(value)
    else:
        ok = False
    if not ok:
        names = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        raise ConfigError(f"{name}: expected {names}, got {value!r}", name)
    return value


@contextmanager
def keywords_in_errors() -> Iterator[None]:
    """Inside, errors name settings as keywords (max_num_seqs), not as flags (--max-num-seqs)."""
    try:
        yield
    except (ConfigError, RequestError) as error:
        error.args = (_FLAG.sub(_keyword, str(error)),)
        raise


def _keyword(match: re.Match[str]) -> str:
    """'--max-num-seqs' -> 'max_num_seqs', '--device cpu' -> "device='cpu'"; others stay."""
    field, word = _FIELDS.get(match[1].replace("-", "_")), match[2]
    if field is None:
        return match[0]
    if word is None:
        return field.name
    is_value = word in field.metadata.get("choices", ())
    return f"{field.name}={word!r}" if is_value else f"{field.name} {word}"


def _unknown(name: str) -> str:
    known = list(_FIELDS)
    near = difflib.get_close_matches(name.removeprefix("--").replace("-", "_"), known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    return f"unknown setting {name!r}; {hint}"

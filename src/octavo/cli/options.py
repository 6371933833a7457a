"""Config dataclasses -> the options of a command, so that no flag is written twice."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import typer

_METAVARS = {int: "N", float: "X", str: "TEXT"}


def with_options(
    *classes: type[Any], but: Container[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: the command takes, besides its own parameters, an option per field of `classes`.

    The command gets them as one dict, `settings`, by field name. A field's metadata may hold: help;
    choices; env (an environment variable); parse (from text, done by the receiver); positional;
    metavar. Fields with a metadata key in `but` are left out. `title` of a class heads its options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        fields = [f for cls in classes for f in _parameters(cls, but)]
        kept = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in own.parameters.values()
            if p.name != "settings"
        ]
        names = {f.name for f in fields}

        @functools.wraps(command)
        def run(**values: Any) -> None:
            settings = {name: _plain(values.pop(name)) for name in names}
            command(settings=settings, **values)

        parameters = [*(f for f in fields if _is_argument(f)), *kept]
        parameters += [f for f in fields if not _is_argument(f)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__  # or typer would read the signature of `command` through it
        return run

    return decorate


def _parameters(cls: type[Any], but: Container[str]) -> Iterator[inspect.Parameter]:
    types = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if any(key in but for key in field.metadata):
            continue
        option = _option(field, types[field.name], getattr(cls, "title", None))
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=typing.Annotated[_type(field, types[field.name]), option],
        )


def _option(field: dataclasses.Field[Any], declared: Any, title: str | None) -> Any:
    meta = field.metadata
    if meta.get("positional"):
        return typer.Argument(help=meta["help"], metavar=field.name.upper())
    flag = "--" + field.name.replace("_", "-")
    names = [f"{flag}/--no-{flag[2:]}"] if isinstance(field.default, bool) else [flag]
    return typer.Option(
        *names,
        help=meta["help"],
        envvar=meta.get("env"),
        metavar=meta.get("metavar") or _metavar(meta, declared),
        rich_help_panel=title or None,
    )


def _metavar(meta: Mapping[str, Any], declared: Any) -> str | None:
    """What stands for the value in the help; None where the choices or nothing does."""
    if "parse" in meta:
        return "SIZE"
    if "choices" in meta:
        return None
    kinds = typing.get_args(declared) or (declared,)
    return next((_METAVARS[kind] for kind in kinds if kind in _METAVARS), None)


def _is_argument(parameter: inspect.Parameter) -> bool:
    kind = typing.get_args(parameter.annotation)[1]
    return isinstance(kind, typer.models.ArgumentInfo)


def _type(field: dataclasses.Field[Any], declared: Any) -> Any:
    """What the parser makes of the text: an enum for choices, the text where `parse` follows."""
    optional = type(None) in typing.get_args(declared)
    if "choices" in field.metadata:
        choices = field.metadata["choices"]
        kind: Any = enum.StrEnum(field.name, {c: c for c in choices})  # type: ignore[misc]
        return kind | None if optional else kind
    if "parse" in field.metadata:
        return str | None
    if typing.get_origin(declared) is tuple:
        return list[typing.get_args(declared)[0]]  # type: ignore[misc]
    return declared


def _default(field: dataclasses.Field[Any]) -> Any:
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _plain(value: Any) -> Any:
    if isinstance(value, enum.StrEnum):
        return str(value)
    return tuple(value) if isinstance(value, list) else value

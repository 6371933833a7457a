"""The sandbox that chat templates run in: what Hub templates expect, and limits on what they
cost."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.text.jinja_limits import MAX_OUTPUT_CHARS, LimitExceeded, Range, check_operation

if TYPE_CHECKING:
    import jinja2
    from jinja2 import nodes
    from jinja2.parser import Parser


class TemplateRaised(Exception):
    """The template called raise_exception(message): it refuses these messages."""


@cache
def environment() -> jinja2.Environment:
    """The environment of all templates: an immutable sandbox, blocks trimmed as Hub templates
    expect.

    It has loop controls, the tag {% generation %} (which only marks text), and a tojson that writes
    characters as they are.
    """
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        """Refuses products that would be too large to keep."""

        intercepted_binops = frozenset(["*", "**"])

        def call_binop(
            self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
        ) -> Any:
            check_operation(operator, left, right)
            return super().call_binop(context, operator, left, right)

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %}: its body, in a scope of its own."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            from jinja2 import nodes

            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    env = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise_exception
    return env


def compile_template(source: str) -> jinja2.Template:
    """Compile once, render often. Raises RequestError for a syntax error, naming its line."""
    import jinja2

    try:
        return environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise RequestError(
            f"the model's chat template has a syntax error in line {error.lineno}: "
            f"{error.message}; "
            "pass a corrected one with --chat-template"
        ) from None
    except (RecursionError, OverflowError, MemoryError, SyntaxError) as error:
        raise RequestError(f"the model's chat template cannot be compiled: {error}") from None


def render(
    template: jinja2.Template, variables: Mapping[str, Any], now: Callable[[], datetime.datetime]
) -> str:
    """Render within the limits. Every failure of the template becomes a RequestError."""
    import jinja2

    pieces: list[str] = []
    size = 0
    functions = {"range": Range(), "strftime_now": lambda form: now().strftime(form)}
    try:
        for piece in template.generate({**functions, **variables}):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_OUTPUT_CHARS:
                raise LimitExceeded(f"it wrote more than {MAX_OUTPUT_CHARS} characters")
    except TemplateRaised as error:
        raise RequestError(
            f"the chat template refuses these messages: {error}", "messages"
        ) from None
    except jinja2.UndefinedError as error:
        raise RequestError(
            f"the chat template needs something the request does not have: {error}", "messages"
        ) from None
    except RecursionError:
        raise RequestError(
            "the chat template failed: it calls itself without end", "messages"
        ) from None
    except (
        Exception
    ) as error:  # template code can raise anything; none of it may reach a client raw
        raise RequestError(
            f"the chat template failed on these messages: {error or type(error).__name__}",
            "messages",
        ) from None
    return "".join(pieces)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> None:
    raise TemplateRaised(message)

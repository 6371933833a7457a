"""Bytes of a request -> a checked body, or an error that says what was wrong where."""

from __future__ import annotations

import re
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from octavo.errors import RequestError, UnsupportedParameterError
from octavo.server.expected import expected
from octavo.server.fields import shown
from octavo.server.requests import Body
from octavo.server.unsupported import refuse_extra_fields

B = TypeVar("B", bound=Body)


class BodyTooLargeError(RequestError):
    """A body over the limit (413)."""

    status = 413


class MediaTypeError(RequestError):
    """A body that is not declared as JSON (415)."""

    status = 415


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises for another type than JSON and for more than `limit` bytes.

    The type must be declared: a browser sends undeclared or plain-text bodies across origins
    without asking, and a page elsewhere must not be able to use a server on localhost.
    """
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media != "application/json" and not re.fullmatch(r"application/[\w.-]+\+json", media):
        raise MediaTypeError(
            f"expected the header Content-Type: application/json, got {media or 'none'}",
            code="unsupported_media_type",
        )
    declared = request.headers.get("content-length", "0")
    size, parts = 0, []
    if not declared.isdigit() or int(declared) <= limit:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                break
            parts.append(part)
        else:
            return b"".join(parts)
    raise BodyTooLargeError(
        f"expected a body of at most {limit} bytes, got {max(size, int(declared))} or more; "
        "send fewer or shorter prompts",
        code="body_too_large",
    )


def parse_body(data: bytes, kind: type[B]) -> B:
    """JSON to a body of class `kind`, every field checked. Raises RequestError."""
    try:
        body = kind.model_validate_json(data)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0], kind) from None
    refuse_extra_fields(body)
    return body


def _refusal(detail: ErrorDetails, kind: type[Body]) -> RequestError:
    if detail["type"] == "json_invalid":
        return RequestError(f"the body is not JSON: {detail['ctx']['error']}", code="invalid_json")
    param = _path(detail["loc"])
    if detail["type"] == "unsupported":
        return UnsupportedParameterError(f"`{param}`: {detail['msg']}", param)
    if detail["type"] == "missing":
        name = f"`{param}`" if param else "the body"
        return RequestError(f"{name} is missing; the request must hold it", param, "missing_field")
    if detail["type"] == "invalid":
        return RequestError(f"`{param}`: {detail['msg']}", param, "invalid_value")
    where = f"`{param}`" if param else "the body"
    words = expected(kind, detail["loc"])
    return RequestError(
        f"{where}: expected {words}, got {shown(detail['input'])}", param, "invalid_value"
    )


def _path(loc: tuple[int | str, ...]) -> str | None:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path or None

"""Who may use the server, and whether it takes requests."""

from __future__ import annotations

import hmac

from starlette.requests import Request

from octavo.errors import AuthenticationError, EngineStoppedError
from octavo.server.context import ServingContext


def context_of(request: Request) -> ServingContext:
    """The app's context."""
    context: ServingContext = request.app.state.context
    return context


def check_key(request: Request) -> None:
    """Raise AuthenticationError unless the API key, if there is one, came as a bearer token."""
    key = context_of(request).api_key
    if key is None:
        return
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise AuthenticationError("expected the header `Authorization: Bearer KEY`, got none")
    # Compared as bytes in constant time; headers are latin-1 on the wire.
    if not hmac.compare_digest(token.strip().encode("latin-1", "replace"), key.encode()):
        raise AuthenticationError("the API key is not the one this server was started with")


def check_running(request: Request) -> None:
    """Raise EngineStoppedError when the server drains or its engine has died."""
    if request.app.state.is_draining:
        raise EngineStoppedError("the server is shutting down; send the request again in a while")
    if not context_of(request).engine.is_running:
        raise EngineStoppedError("the engine is not running; the server needs a restart")

"""Who may use the server, and whether it takes requests."""

from __future__ import annotations

import hashlib
import hmac

from starlette.requests import Request

from octavo.errors import AuthenticationError, EngineStoppedError
from octavo.server.context import ServingContext


def context_of(request: Request) -> ServingContext:
    """The app's context."""
    context: ServingContext = request.app.state.context
    return context


def check_key(request: Request) -> str | None:
    """The API key that came as a bearer token, one of those that are valid; None if none is needed.

    Raises AuthenticationError.
    """
    keys = context_of(request).api_keys
    if not keys:
        return None
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise AuthenticationError("expected the header `Authorization: Bearer KEY`, got none")
    # Compared as bytes in constant time, with all of them; headers are latin-1 on the wire.
    sent = token.strip().encode("latin-1", "replace")
    found = [key for key in keys if hmac.compare_digest(sent, key.encode())]
    if not found:
        raise AuthenticationError("the API key is not one that this server was started with")
    return found[0]


def salt_of(request: Request, cache_salt: str | None) -> str | None:
    """The salt of a request's KV blocks: its own, and with --cache-salt-per-key its key's too.

    What stands for a key is a hash, the same after a restart: nobody sees the key in it.
    """
    if not context_of(request).cache_salt_per_key:
        return cache_salt
    key = check_key(request) or ""
    tenant = hashlib.blake2b(key.encode(), digest_size=16, person=b"octavo api key").hexdigest()
    return f"key:{tenant}:{cache_salt or ''}"


def check_running(request: Request) -> None:
    """Raise EngineStoppedError when the server drains or its engine has died."""
    if request.app.state.is_draining:
        raise EngineStoppedError("the server is shutting down; send the request again in a while")
    if not context_of(request).engine.is_running:
        raise EngineStoppedError("the engine is not running; the server needs a restart")

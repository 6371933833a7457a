"""Errors in OpenAI's shape, with the right status; never a traceback."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from octavo.errors import EngineError, OctavoError, RequestError
from octavo.server.responses import ErrorBody, ErrorDetail, encode

RETRY_AFTER = {429: "1", 503: "5"}
"""Seconds after which another try makes sense: a queue moves soon, a restart takes longer."""


def error_body(error: OctavoError) -> ErrorBody:
    """The body for a deliberate error."""
    if isinstance(error, RequestError):
        code = error.code or ("invalid_value" if error.param else "invalid_request")
        return ErrorBody(ErrorDetail(str(error), error.type, error.param, code))
    kind = "engine_stopped" if _status(error) == 503 else "sequence_failed"
    return ErrorBody(ErrorDetail(str(error), "server_error", None, kind))


def internal_error_body() -> ErrorBody:
    """The body for a fault of ours; the details are in the server's log."""
    message = "the server failed to answer this request; its log says why. Other requests go on"
    return ErrorBody(ErrorDetail(message, "server_error", None, "internal_error"))


def _status(error: OctavoError) -> int:
    return error.status if isinstance(error, RequestError | EngineError) else 500


def error_response(status: int, body: ErrorBody, headers: dict[str, str] | None = None) -> Response:
    """A JSON error response."""
    extra = dict(headers or {})
    if status in RETRY_AFTER:
        extra["retry-after"] = RETRY_AFTER[status]
    if status == 401:
        extra["www-authenticate"] = "Bearer"
    return Response(encode(body), status, extra, media_type="application/json")


def _http_body(request: Request, error: HTTPException) -> ErrorBody:
    path, allowed = request.url.path[:200], (error.headers or {}).get("Allow", "another method")
    if error.status_code == 404:
        message, code = f"no such path: {path}; /docs lists the endpoints", "not_found"
    elif error.status_code == 405:
        message = f"{path}: expected {allowed}, got {request.method}"
        code = "method_not_allowed"
    else:
        message, code = str(error.detail), "http_error"
    return ErrorBody(ErrorDetail(message, "invalid_request_error", None, code))


def install_error_handlers(app: FastAPI) -> None:
    """Every deliberate exception becomes an error of the API; for the others see `outermost`."""

    async def deliberate(request: Request, error: Exception) -> Response:
        assert isinstance(error, OctavoError)
        return error_response(_status(error), error_body(error))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        return error_response(error.status_code, _http_body(request, error), headers)

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # the client left while it sent the body

    app.add_exception_handler(OctavoError, deliberate)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(ClientDisconnect, gone)

"""Pages for people: / and /docs. They load nothing from elsewhere, so they work offline."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from octavo.server.access import context_of

router = APIRouter(include_in_schema=False)
_POLICY = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'"
}


@cache
def _docs_page() -> str:
    return files("octavo.server").joinpath("static", "docs.html").read_text("utf-8")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API's reference, drawn from /openapi.json."""
    return HTMLResponse(_docs_page(), headers=_POLICY)


@router.get("/")
async def home(request: Request) -> Response:
    """What this is: the reference for a browser, links for a program."""
    if "text/html" in request.headers.get("accept", ""):
        return await docs(request)
    ctx = context_of(request)
    links = ["/docs", "/openapi.json", "/health", "/metrics", "/v1/models"]
    data = {"name": "octavo", "version": ctx.version, "models": ctx.model_names, "links": links}
    return JSONResponse(data)

"""The app: its routes and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from octavo.server import api, meta, pages
from octavo.server.context import ServingContext
from octavo.server.error_responses import install_error_handlers
from octavo.server.logprobs import TokenTexts
from octavo.server.metrics import Metrics
from octavo.server.openapi import install_schema
from octavo.server.outermost import Outermost


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: ServingContext = app.state.context
    await context.engine.start()
    try:
        yield
    finally:
        if context.engine.is_running:
            await context.engine.drain(0.0)


def create_app(ctx: ServingContext) -> FastAPI:
    """An ASGI app that serves `ctx`; its lifespan starts and stops the engine.

    `app.state.is_draining` True makes it refuse new requests with 503.
    """
    app = FastAPI(
        title="Octavo",
        version=ctx.version,
        description="OpenAI-compatible API",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.context = ctx
    app.state.is_draining = False
    app.state.texts = TokenTexts(ctx.tokenizer)
    app.state.metrics = Metrics(ctx.engine, ctx.model_name, ctx.cache_info)
    app.state.metrics.attach(ctx.engine)
    for part in (api, meta, pages):
        app.include_router(part.router)
    app.add_middleware(Outermost, counter=app.state.metrics.http_requests)
    install_error_handlers(app)
    install_schema(app)
    return app

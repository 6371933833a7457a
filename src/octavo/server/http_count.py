"""Counts HTTP answers by method, path template and status."""

from __future__ import annotations

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HttpCount:
    """ASGI middleware. The label is the route's template, so that paths cannot flood the metrics."""

    def __init__(self, app: ASGIApp, counter: Counter) -> None:
        self.app = app
        self.counter = counter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run as an ASGI app."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                handler = getattr(scope.get("route"), "path", "other")
                self.counter.labels(scope["method"], handler, str(message["status"])).inc()
            await send(message)

        await self.app(scope, receive, counted)

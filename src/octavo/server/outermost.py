"""Around every request: counts answers, and keeps a fault of ours from reaching the client."""

from __future__ import annotations

import logging

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.error_responses import error_response, internal_error_body

log = logging.getLogger("octavo.server")


class Outermost:
    """ASGI middleware. Answers are counted by method, path template (so that paths cannot flood the
    metrics) and status. An unexpected exception goes to the log, and the client gets a 500; if its
    answer has begun already, the connection is closed."""

    def __init__(self, app: ASGIApp, counter: Counter) -> None:
        self.app = app
        self.counter = counter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run as an ASGI app."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_begun = False

        async def counted(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                handler = getattr(scope.get("route"), "path", "other")
                self.counter.labels(scope["method"], handler, str(message["status"])).inc()
            await send(message)

        try:
            await self.app(scope, receive, counted)
        except Exception:
            if has_begun:
                raise
            log.exception("%s %s failed", scope["method"], scope["path"])
            await error_response(500, internal_error_body())(scope, receive, counted)

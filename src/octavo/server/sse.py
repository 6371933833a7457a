"""Server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.disconnect import until_disconnect
from octavo.server.responses import encode

DONE = b"data: [DONE]\n\n"


def event(data: msgspec.Struct) -> bytes:
    """One event. JSON holds no raw line feed, so one `data:` line is enough."""
    return b"data: " + encode(data) + b"\n\n"


class EventStream(Response):
    """Sends events as they come; closes their source when the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self.events = events
        # Proxies must not collect the events (nginx reads X-Accel-Buffering).
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run as an ASGI response."""
        await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self.events):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for data in self.events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

"""Sends samples to a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.bench.http.client import HttpClient
from octavo.bench.options import ServeOptions
from octavo.bench.serve.outcome import Outcome
from octavo.bench.serve.stream import Stream
from octavo.bench.workload.sample import Prompt, Sample
from octavo.errors import ConfigError

PATHS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


class Sender:
    """One server, one model, one kind of request."""

    def __init__(self, client: HttpClient, options: ServeOptions, model: str) -> None:
        self._client = client
        self._is_chat = options.backend == "openai-chat"
        self._timeout = options.request_timeout_sec
        self.path = options.endpoint or PATHS[options.backend]
        self._common: dict[str, Any] = {
            "model": model,
            "temperature": options.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if options.ignore_eos:
            self._common["ignore_eos"] = True
        self._common.update(parse_extra(options.extra_body))

    def body(self, sample: Sample) -> bytes:
        """The request as JSON."""
        fields = {"max_tokens": sample.output_len, **self._prompt(sample.prompt), **self._common}
        return msgspec.json.encode(fields)

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        if self._is_chat:
            return {"messages": [{"role": "user", "content": prompt}]}
        return {"prompt": prompt}

    async def send(self, sample: Sample) -> Outcome:
        """Send one request and read its stream. Failures are told in `Outcome.error`, never
        raised."""
        body = self.body(sample)
        stream = Stream(time.perf_counter())
        refused: list[bytes] = []

        def take(status: int, piece: bytes) -> None:
            if status == 200:
                stream.feed(piece, time.perf_counter())
            else:
                refused.append(piece)

        outcome = stream.outcome
        try:
            sending = self._client.send("POST", self.path, body, take)
            status = await asyncio.wait_for(sending, self._timeout)
        except TimeoutError:
            outcome.error = f"no complete answer within {self._timeout:g} s"
        except OSError as error:
            outcome.error = f"{type(error).__name__}: {error}"
        else:
            if status == 200:
                return stream.end(time.perf_counter())
            text = b"".join(refused).decode("utf-8", "replace")
            outcome.error = f"HTTP {status}: {text[:500]}"
        return outcome


def parse_extra(text: str | None) -> Mapping[str, Any]:
    """--extra-body as a dict. Raises ConfigError."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"--extra-body: expected a JSON object, got {text!r}: {error}") from None


def parse_headers(options: ServeOptions) -> dict[str, str]:
    """--header and --api-key as headers. Raises ConfigError."""
    headers = {}
    for text in options.header:
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or any(c in text for c in "\r\n"):
            raise ConfigError(f"--header: expected Name=Value, got {text!r}", "header")
        headers[name.strip()] = value
    if options.api_key:
        headers["Authorization"] = f"Bearer {options.api_key}"
    return headers

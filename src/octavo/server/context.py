"""All that the HTTP side is given; it builds nothing of this itself."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from functools import cached_property

from octavo.errors import UnknownModelError
from octavo.request import SamplingParams
from octavo.server.interfaces import ChatTemplate, ServingEngine, Tokenizer

MAX_BODY_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class ServingContext:
    """What an app serves.

    `model_names`: names in the API, the first one the canonical. `chat_template` None: the model
    has none, and chat is refused. `default_sampling` holds the model's own defaults
    (generation_config); a request's fields go over it, and its max_tokens is not used.
    `api_keys`: with none, everybody may come; `cache_salt_per_key`: each has KV blocks of its own.
    `root`: where the model came from. `backend`: what else the tokens depend on: the model's
    fingerprint, op set and instruction set, data types, quantisation. `drain_timeout` in seconds.
    `cache_info`: labels of the cache_config_info metric.
    """

    engine: ServingEngine
    tokenizer: Tokenizer
    model_names: tuple[str, ...]
    version: str
    chat_template: ChatTemplate | None = None
    api_keys: tuple[str, ...] = ()
    cache_salt_per_key: bool = False
    default_sampling: SamplingParams = field(default_factory=SamplingParams)
    created: int = field(default_factory=lambda: int(time.time()))
    root: str = ""
    backend: tuple[str, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES
    drain_timeout: float = 30.0
    cache_info: dict[str, str] = field(default_factory=dict)

    @property
    def model_name(self) -> str:
        """The canonical name of the model."""
        return self.model_names[0]

    def resolve_model(self, name: str | None) -> str:
        """The name to answer under. Raises UnknownModelError."""
        if name is None or name in self.model_names:
            return name or self.model_name
        served = ", ".join(f"`{n}`" for n in self.model_names)
        raise UnknownModelError(
            f"the model `{name[:100]}` is not served here; served: {served} (see /v1/models)"
        )

    @cached_property
    def system_fingerprint(self) -> str:
        """Names what decides the tokens of a seeded request, apart from the request.

        Two servers with equal fingerprints run the same version and model on the same op set and
        instruction set, with the same data types and quantisation, so they give equal tokens.
        """
        text = "|".join((self.version, *self.backend))
        return "fp_" + hashlib.sha256(text.encode()).hexdigest()[:10]

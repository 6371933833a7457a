"""Every error that Octavo raises on purpose.

OctavoError
├── ConfigError                 a flag or setting that cannot work (start-up)
├── ModelError                  a model that cannot be loaded
│   ├── ModelNotFoundError      nothing at that path, alias or hub id
│   ├── UnsupportedModelError   an architecture, tensor type or tokenizer that Octavo does not know
│   └── MalformedModelError     a file that breaks its own format; names the offset or tensor
├── RequestError                one request refused; the server goes on            HTTP 400
│   ├── UnsupportedParameterError   known to the API, not supported yet           HTTP 400
│   ├── UnknownModelError       a model name that is not served                   HTTP 404
│   ├── AuthenticationError     a missing or wrong API key                        HTTP 401
│   └── QueueFullError          too many requests wait already                    HTTP 429
├── StoreError                  the block store on disk cannot be used
└── EngineError                 the engine cannot serve
    ├── EngineStoppedError      it is draining or has stopped                     HTTP 503
    └── SequenceError           one sequence failed while it ran                  HTTP 500

A message says what was expected, what came, and what mends it.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Base of all deliberate errors."""


class ConfigError(OctavoError, ValueError):
    """A setting that cannot work; `field` is its name in config.py (flag: --field-with-dashes)."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ModelError(OctavoError):
    """A model that cannot be loaded."""


class ModelNotFoundError(ModelError):
    """Nothing at that path, alias or hub id."""


class UnsupportedModelError(ModelError):
    """An architecture, tensor type or tokenizer that Octavo does not know; lists what it does."""


class MalformedModelError(ModelError):
    """A file that breaks its own format; the message names the file and the offset or tensor."""


class StoreError(OctavoError):
    """The block store on disk cannot be used: no room, no access, in use, another model's."""


class RequestError(OctavoError, ValueError):
    """One request refused at the door.

    `param` is the field at fault (None when it is the whole body), `code` OpenAI's short code.
    """

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class UnsupportedParameterError(RequestError):
    """A parameter that the API knows and Octavo does not support yet: refused, never ignored."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message, param, "unsupported_parameter")


class UnknownModelError(RequestError):
    """A model name that is not served."""

    status = 404

    def __init__(self, message: str) -> None:
        super().__init__(message, "model", "model_not_found")


class AuthenticationError(RequestError):
    """A missing or wrong API key."""

    status = 401
    type = "authentication_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, None, "invalid_api_key")


class QueueFullError(RequestError):
    """Too many requests wait already."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, None, "queue_full")


class EngineError(OctavoError):
    """The engine cannot serve."""

    status = 500


class EngineStoppedError(EngineError):
    """The engine is draining or has stopped."""

    status = 503


class SequenceError(EngineError):
    """One sequence failed while it ran; the others go on."""

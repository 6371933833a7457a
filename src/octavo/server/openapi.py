"""The schema of the API: bodies are pydantic models, answers msgspec structs; both are listed here,
because the endpoints read and write them without FastAPI's own, slower, conversions."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from octavo.server.requests import (
    Body,
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from octavo.server.responses import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    Detokenized,
    ErrorBody,
    ModelCard,
    ModelList,
    Tokenized,
)

_REF = "#/components/schemas/"
_BODIES: tuple[type[Body], ...] = (
    CompletionRequest, ChatCompletionRequest, TokenizeRequest, DetokenizeRequest,
)  # fmt: skip
_ANSWERS: tuple[type[msgspec.Struct], ...] = (
    Completion, ChatCompletion, ChatCompletionChunk, ModelList, ModelCard, Tokenized, Detokenized,
    ErrorBody,
)  # fmt: skip
_ERRORS = {
    "400": "a field is wrong; `param` names it",
    "401": "a missing or wrong API key",
    "404": "no such model",
    "413": "the body is too large",
    "415": "the body is not declared as JSON",
    "429": "too many requests wait; see Retry-After",
    "500": "the request failed while it ran; others go on",
    "503": "the server is shutting down; see Retry-After",
}


def _json(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF + kind.__name__}}}


def operation(
    body: type[Body] | None,
    answer: type[msgspec.Struct],
    chunk: type[msgspec.Struct] | None = None,
) -> dict[str, Any]:
    """Arguments of a route decorator that document its body and answers.

    `chunk`: the data of one event, where the answer can be a stream.
    """
    content = _json(answer)
    if chunk is not None:
        content["text/event-stream"] = _json(chunk)["application/json"]
    codes = _ERRORS if body is not None else {"401": _ERRORS["401"]}
    responses: dict[int | str, dict[str, Any]] = {
        code: {"description": text, "content": _json(ErrorBody)} for code, text in codes.items()
    }
    responses["200"] = {"description": "the answer", "content": content}
    if body is None:
        return {"responses": responses}
    extra = {"requestBody": {"required": True, "content": _json(body)}}
    return {"responses": responses, "openapi_extra": extra}


def install_schema(app: FastAPI) -> None:
    """Make `app.openapi()` give the whole schema, made once when first asked for."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            for path in made["paths"].values():
                for verb in path.values():
                    verb["responses"].pop("422", None)  # FastAPI's own, which is never sent
            schemas = made["components"]["schemas"] = {}
            _, bodies = models_json_schema(
                [(body, "validation") for body in _BODIES], ref_template=_REF + "{model}"
            )
            _, answers = msgspec.json.schema_components(_ANSWERS, ref_template=_REF + "{name}")
            schemas.update(bodies["$defs"])
            schemas.update(answers)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]

"""The endpoints that do not generate: models, health, version, metrics, tokens."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError, UnknownModelError
from octavo.server.access import check_key, check_running, context_of
from octavo.server.context import ServingContext
from octavo.server.metrics import Metrics
from octavo.server.openapi import operation
from octavo.server.parse import parse_body, read_body
from octavo.server.prompts import check_token_ids, encode, encode_chat
from octavo.server.requests import DetokenizeRequest, TokenizeRequest
from octavo.server.responses import Detokenized, ModelCard, ModelList, Tokenized
from octavo.server.responses import encode as to_json

router = APIRouter(tags=["server"])


def _json(data: object, status: int = 200) -> Response:
    return Response(to_json(data), status, media_type="application/json")


def _card(ctx: ServingContext, name: str) -> ModelCard:
    return ModelCard(name, ctx.created, ctx.engine.limits.max_model_len, ctx.root or name)


@router.get("/v1/models", **operation(None, ModelList))
async def models(request: Request) -> Response:
    """The served models."""
    check_key(request)
    ctx = context_of(request)
    return _json(ModelList([_card(ctx, name) for name in ctx.model_names]))


@router.get("/v1/models/{model_id:path}", **operation(None, ModelCard))
async def model(request: Request, model_id: str) -> Response:
    """One served model."""
    check_key(request)
    ctx = context_of(request)
    if not model_id:
        raise UnknownModelError("expected a model's name after /v1/models/, got none")
    return _json(_card(ctx, ctx.resolve_model(model_id)))


@router.get("/health", responses={503: {"description": "draining, or the engine has died"}})
async def health(request: Request) -> Response:
    """200 while requests are taken."""
    check_running(request)
    return _json({"status": "ok"})


@router.get("/version")
async def version(request: Request) -> Response:
    """Octavo's version."""
    return _json({"version": context_of(request).version})


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    source: Metrics = request.app.state.metrics
    return Response(source.exposition(), media_type=CONTENT_TYPE_LATEST)


@router.post("/tokenize", **operation(TokenizeRequest, Tokenized))
async def tokenize(request: Request) -> Response:
    """Token ids of a prompt or of a conversation."""
    check_key(request)
    ctx = context_of(request)
    body = parse_body(await read_body(request, ctx.max_body_bytes), TokenizeRequest)
    ctx.resolve_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        got = "both" if body.prompt is not None else "neither"
        raise RequestError(f"expected one of `prompt` and `messages`, got {got}", "prompt")
    if body.messages is not None:
        ids = await encode_chat(ctx, body)
    else:
        special = body.add_special_tokens is not False
        ids = await encode(ctx, body.prompt or "", add_special_tokens=special)
    texts = request.app.state.texts
    strs = [texts(i)[0] for i in ids] if body.return_token_strs else None
    return _json(Tokenized(len(ids), ctx.engine.limits.max_model_len, list(ids), strs))


@router.post("/detokenize", **operation(DetokenizeRequest, Detokenized))
async def detokenize(request: Request) -> Response:
    """Text of token ids, special tokens included."""
    check_key(request)
    ctx = context_of(request)
    body = parse_body(await read_body(request, ctx.max_body_bytes), DetokenizeRequest)
    ctx.resolve_model(body.model)
    check_token_ids(body.tokens, ctx.engine.limits.vocab_size, "tokens")
    return _json(Detokenized(ctx.tokenizer.decode(body.tokens, skip_special_tokens=False)))

"""The two endpoints that generate."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from octavo.request import SamplingParams
from octavo.server.access import check_key, check_running, context_of, salt_of
from octavo.server.answer import answer
from octavo.server.chat import ChatWriter
from octavo.server.completions import CompletionWriter
from octavo.server.context import ServingContext
from octavo.server.generation import Generation
from octavo.server.logprobs import TokenTexts
from octavo.server.openapi import operation
from octavo.server.params import chat_params, completion_params
from octavo.server.parse import parse_body, read_body
from octavo.server.prompts import encode_chat, encode_prompts
from octavo.server.requests import ChatCompletionRequest, CompletionRequest, SamplingFields
from octavo.server.responses import ChatCompletion, ChatCompletionChunk, Completion

log = logging.getLogger("octavo.server")
router = APIRouter(prefix="/v1", tags=["generate"])


@router.post("/completions", **operation(CompletionRequest, Completion, Completion))
async def completions(request: Request) -> Response:
    """Continue one prompt or several."""
    ctx = _admit(request)
    body = parse_body(await read_body(request, ctx.max_body_bytes), CompletionRequest)
    model = ctx.resolve_model(body.model)
    params = completion_params(body, ctx.default_sampling, ctx.engine.limits.vocab_size)
    special = body.add_special_tokens is not False
    prompts = await encode_prompts(ctx, body.prompt, add_special_tokens=special)
    name = f"cmpl-{uuid.uuid4().hex}"
    writer = CompletionWriter(
        id=name,
        created=int(time.time()),
        model=model,
        fingerprint=ctx.system_fingerprint,
        n=params.n,
        prompts=prompts,
        echoes=_echoes(ctx, body, params),
        texts=_texts(request),
        logprobs=body.logprobs is not None,
        token_ids=bool(body.return_token_ids or body.return_tokens),
    )
    generation = await _start(ctx, body, prompts, params, name, salt_of(request, body.cache_salt))
    return await answer(request, body, writer, generation, name)


@router.post(
    "/chat/completions",
    **operation(ChatCompletionRequest, ChatCompletion, ChatCompletionChunk),
)
async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    ctx = _admit(request)
    body = parse_body(await read_body(request, ctx.max_body_bytes), ChatCompletionRequest)
    model = ctx.resolve_model(body.model)
    params = chat_params(body, ctx.default_sampling, ctx.engine.limits.vocab_size)
    prompt = await encode_chat(ctx, body)
    name = f"chatcmpl-{uuid.uuid4().hex}"
    writer = ChatWriter(
        id=name,
        created=int(time.time()),
        model=model,
        fingerprint=ctx.system_fingerprint,
        prompt=prompt,
        texts=_texts(request),
        logprobs=bool(body.logprobs),
        token_ids=bool(body.return_token_ids or body.return_tokens),
    )
    generation = await _start(ctx, body, [prompt], params, name, salt_of(request, body.cache_salt))
    return await answer(request, body, writer, generation, name)


def _admit(request: Request) -> ServingContext:
    check_key(request)
    check_running(request)
    return context_of(request)


def _texts(request: Request) -> TokenTexts:
    texts: TokenTexts = request.app.state.texts
    return texts


def _echoes(
    ctx: ServingContext, body: CompletionRequest, params: SamplingParams
) -> list[str | None]:
    """What each choice begins with: the prompt as it came, or its text if it came as ids."""
    if not body.echo:
        return [None] * len(body.prompt)
    skip = params.skip_special_tokens
    return [
        p if isinstance(p, str) else ctx.tokenizer.decode(p, skip_special_tokens=skip)
        for p in body.prompt
    ]


async def _start(
    ctx: ServingContext,
    body: SamplingFields,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    name: str,
    cache_salt: str | None,
) -> Generation:
    generation = await Generation.start(
        ctx.engine,
        prompts,
        params,
        request_id=name,
        priority=body.priority or 0,
        cache_salt=cache_salt,
    )
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "%s: %d prompt(s) of %s tokens, user=%r metadata=%r, %r",
            name, len(prompts), [len(p) for p in prompts],
            body.user, getattr(body, "metadata", None), params,
        )  # fmt: skip
    return generation

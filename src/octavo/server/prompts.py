"""Texts, token ids and conversations -> the token ids that the engine reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from octavo.errors import RequestError
from octavo.server.context import ServingContext
from octavo.server.fields import Prompts
from octavo.server.requests import ChatCompletionRequest, ChatMessage, TokenizeRequest

ChatFields = ChatCompletionRequest | TokenizeRequest

LONG_TEXT = 16_384
"""Characters from which a text is tokenised in a thread, so that other streams go on."""


MANY_MESSAGES = 256
"""Messages from which a conversation is rendered in a thread."""

RESERVED_KWARGS = frozenset(
    {"self", "messages", "tools", "add_generation_prompt", "continue_final_message"}
)
"""Names that chat_template_kwargs may not give: they are fields of the request."""


async def encode(
    ctx: ServingContext, text: str, *, add_special_tokens: bool, where: str = "prompt"
) -> list[int]:
    """Token ids of `text`. What cannot fit the context is refused before the work is done."""
    limits = ctx.engine.limits
    if len(text) > limits.max_model_len * ctx.tokenizer.max_token_bytes:
        raise RequestError(
            f"`{where}`: expected a text that fits the context of {limits.max_model_len} tokens, "
            f"got {len(text)} characters; shorten it",
            where.split("[")[0],
            "context_length_exceeded",
        )
    if len(text) < LONG_TEXT:
        return ctx.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(
        ctx.tokenizer.encode, text, add_special_tokens=add_special_tokens
    )


async def encode_prompts(
    ctx: ServingContext, prompts: Prompts, *, add_special_tokens: bool
) -> list[list[int]]:
    """Token ids of every prompt, each at least one token and inside the vocabulary."""
    encoded = []
    for i, prompt in enumerate(prompts):
        where = "prompt" if len(prompts) == 1 else f"prompt[{i}]"
        if isinstance(prompt, str):
            ids = await encode(ctx, prompt, add_special_tokens=add_special_tokens, where=where)
            await asyncio.sleep(0)  # a thousand prompts of one body: others get their turn
        else:
            ids = prompt
            check_token_ids(ids, ctx.engine.limits.vocab_size, where)
        if not ids:
            raise RequestError(
                f"`{where}`: expected at least one token, got none; send a text that is not empty",
                "prompt",
            )
        encoded.append(ids)
    return encoded


def check_token_ids(ids: Sequence[int], vocab: int, where: str) -> None:
    """Raise RequestError for an id outside the vocabulary."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab):
        i = next(i for i, x in enumerate(ids) if not 0 <= x < vocab)
        raise RequestError(
            f"`{where}`: expected token ids from 0 to {vocab - 1}, got {ids[i]} at position {i}",
            where.split("[")[0],
        )


async def encode_chat(ctx: ServingContext, body: ChatFields) -> list[int]:
    """Token ids of a conversation. The template writes BOS itself where the model wants one."""
    if ctx.chat_template is None:
        raise RequestError(
            f"the model `{ctx.model_name}` has no chat template; give one with --chat-template, "
            "or send the text to /v1/completions",
            "messages",
        )
    kwargs = body.chat_template_kwargs or {}
    for name in RESERVED_KWARGS & set(kwargs):
        raise RequestError(
            f"`chat_template_kwargs`: `{name}` is a field of the request; give it there",
            "chat_template_kwargs",
        )
    render = partial(
        ctx.chat_template.render,
        [_plain(message) for message in body.messages or ()],
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=bool(body.continue_final_message),
        **kwargs,
    )
    many = len(body.messages or ()) > MANY_MESSAGES
    text = await asyncio.to_thread(render) if many else render()
    special = bool(body.add_special_tokens)
    ids = await encode(ctx, text, add_special_tokens=special, where="messages")
    if not ids:
        raise RequestError("`messages`: expected at least one token, got none", "messages")
    return ids


def _plain(message: ChatMessage) -> dict[str, Any]:
    # `developer` is OpenAI's newer word for what templates of open models call `system`.
    role = "system" if message.role == "developer" else message.role
    plain: dict[str, Any] = {"role": role, "content": message.content}
    if message.name is not None:
        plain["name"] = message.name
    return plain

"""Texts, token ids and conversations -> the token ids that the engine reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from octavo.errors import RequestError
from octavo.server.context import ServingContext
from octavo.server.fields import Prompts
from octavo.server.requests import ChatCompletionRequest, ChatMessage, TokenizeRequest

ChatFields = ChatCompletionRequest | TokenizeRequest

LONG_TEXT = 16_384
"""Characters from which a text is tokenised in a thread, so that other streams go on."""


async def encode(ctx: ServingContext, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids of `text`."""
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
            ids = await encode(ctx, prompt, add_special_tokens=add_special_tokens)
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
    text = ctx.chat_template.render(
        [_plain(message) for message in body.messages or ()],
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=bool(body.continue_final_message),
        **(body.chat_template_kwargs or {}),
    )
    ids = await encode(ctx, text, add_special_tokens=bool(body.add_special_tokens))
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

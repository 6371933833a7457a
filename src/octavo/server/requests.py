"""The bodies that the API takes. Extra fields are let through here and refused by name in
`unsupported.py`, which can tell a typo from a parameter that Octavo does not support yet."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.server.fields import ContentField, LogitBiasField, PromptField, StopField

INT64 = 2**63


def _closed(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = False


class Body(BaseModel):
    """Base of all bodies: no silent conversions, no NaN, nothing unknown."""

    model_config = ConfigDict(
        strict=True, extra="allow", allow_inf_nan=False, frozen=True, json_schema_extra=_closed
    )


class StreamOptions(Body):
    """How to stream."""

    include_usage: bool | None = Field(None, description="end with a chunk that holds the usage")
    continuous_usage_stats: bool | None = Field(None, description="usage so far in every chunk")


class SamplingFields(Body):
    """What completions and chat completions share."""

    model: str | None = Field(None, description="a served model's name (default: the served one)")
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = Field(
        None, description="the newer name of max_tokens"
    )
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = Field(None, description="0 or -1: off")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-INT64, lt=2 * INT64)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = Field(None, description="choices per prompt")
    stop: StopField = Field((), description="texts that end a choice")
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = Field(None, description="go on after the end-of-sequence token")
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    logit_bias: LogitBiasField = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    skip_special_tokens: bool | None = Field(None, description="leave special tokens out of texts")
    add_special_tokens: bool | None = Field(None, description="let the tokenizer add BOS or EOS")
    return_token_ids: bool | None = Field(None, description="add token_ids, prompt_token_ids")
    return_tokens: bool | None = Field(None, description="the same as return_token_ids")
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = Field(
        None, description="lower runs first (--scheduling-policy priority)"
    )
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        None, description="keeps the request's KV blocks apart from those of other salts"
    )
    user: str | None = Field(None, description="a label of yours; it goes to the debug log")


class CompletionRequest(SamplingFields):
    """POST /v1/completions"""

    prompt: PromptField
    best_of: Annotated[int, Field(ge=1)] | None = Field(None, description="only n itself")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="alternatives to give beside each token"
    )
    echo: bool | None = Field(None, description="begin with the prompt (and its logprobs)")


class ChatMessage(Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: ContentField
    name: str | None = None


class ChatCompletionRequest(SamplingFields):
    """POST /v1/chat/completions"""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = Field(None, description="begin the assistant's turn")
    continue_final_message: bool | None = Field(
        None, description="go on with the last message (needs add_generation_prompt false)"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="variables for the chat template"
    )
    metadata: dict[str, str] | None = Field(None, description="labels; they go to the debug log")


class TokenizeRequest(Body):
    """POST /tokenize: a prompt or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    """POST /detokenize"""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]

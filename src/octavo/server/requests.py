"""The bodies that the API takes. Extra fields are let through here and refused by name in
`unsupported.py`, which can tell a typo from a parameter that Octavo does not support yet."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.server.fields import (
    ContentField,
    EarlyStoppingField,
    LogitBiasField,
    PromptField,
    StopField,
)

INT64 = 2**63
MODELS_OWN = "the model's own, else {}"


def _closed(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = False


def about(description: str, default: Any = None, *, words: str = "", empty: Any = None) -> Any:
    """A field that may be left out. `default`, as JSON, or `words` say what is taken then.

    `empty` is its value in Python when left out.
    """

    def described(schema: dict[str, Any]) -> None:
        schema.pop("default", None)
        if default is not None:
            schema["default"] = default
        if words:
            schema["x-default"] = words

    return Field(empty, description=description, json_schema_extra=described)


class Body(BaseModel):
    """Base of all bodies: no silent conversions, no NaN, nothing unknown."""

    model_config = ConfigDict(
        strict=True, extra="allow", allow_inf_nan=False, frozen=True, json_schema_extra=_closed
    )


class StreamOptions(Body):
    """How to stream."""

    include_usage: bool | None = about("end with a chunk that holds the token counts", False)
    continuous_usage_stats: bool | None = about(
        "put the token counts so far into every chunk (with include_usage)", False
    )


class SamplingFields(Body):
    """What completions and chat completions share."""

    model: str | None = about(
        "name of the model, one of /v1/models", words="the one that is served"
    )
    max_tokens: Annotated[int, Field(ge=0)] | None = about(
        "most tokens to generate for each choice; prompt and output must fit the context",
        words="completions: 16; chat: up to the end of the context",
    )
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = about(
        "another name of max_tokens, OpenAI's newer one", words="as max_tokens"
    )
    min_tokens: Annotated[int, Field(ge=0)] | None = about(
        "tokens to generate before an end-of-text token, stop text or stop token may end a choice",
        0,
    )
    temperature: Annotated[float, Field(ge=0)] | None = about(
        "randomness: logits are divided by it; 0 always takes the most likely token",
        words=MODELS_OWN.format("1"),
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = about(
        "sample only from the most likely tokens whose probabilities add up to this; 1: from all",
        words=MODELS_OWN.format("1"),
    )
    top_k: Annotated[int, Field(ge=-1)] | None = about(
        "sample only from this many of the most likely tokens; 0 or -1: from all",
        words=MODELS_OWN.format("0"),
    )
    min_p: Annotated[float, Field(ge=0, le=1)] | None = about(
        "leave out tokens less likely than this share of the most likely one; 0: none",
        words=MODELS_OWN.format("0"),
    )
    seed: Annotated[int, Field(ge=-INT64, lt=2 * INT64)] | None = about(
        "the same request with the same seed gives the same tokens",
        words="drawn for each request, from --seed",
    )
    n: Annotated[int, Field(ge=1, le=128)] | None = about("choices to generate for each prompt", 1)
    best_of: Annotated[int, Field(ge=1, le=128)] | None = about(
        "choices to make, of which the n with the largest sums of log-probabilities are given, "
        "best first; more than n cannot be streamed. With use_beam_search: as beam_width",
        words="n",
    )
    use_beam_search: bool | None = about(
        "draw nothing: keep the beam_width likeliest beginnings at each length, and give the n "
        "best outputs, best first. A stream brings them at its end",
        False,
    )
    beam_width: Annotated[int, Field(ge=1, le=128)] | None = about(
        "beginnings to keep, at least n (only with use_beam_search)", words="best_of, else n"
    )
    length_penalty: Annotated[float, Field(ge=-16, le=16)] | None = about(
        "an output's score is the sum of its log-probabilities divided by its number of tokens to "
        "the power of this: above 0 longer ones gain (only with use_beam_search)",
        1,
    )
    early_stopping: EarlyStoppingField = about(
        "true: end when beam_width outputs are complete; false: go on while the best beginning, as "
        'it stands, beats the worst of them; "never": go on while it could at any length '
        "(only with use_beam_search)",
        False,
    )
    stop: StopField = about(
        "texts that end a choice where they begin, and are not part of it; up to 16, each of 1 to "
        "1024 characters",
        [],
        empty=(),
    )
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = about(
        "token ids that end a choice", []
    )
    include_stop_str_in_output: bool | None = about(
        "leave the stop text that ended a choice in its text", False
    )
    ignore_eos: bool | None = about("go on after the end-of-text token, to max_tokens", False)
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = about(
        "subtracted from the logit of each token that the output already contains", 0
    )
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = about(
        "subtracted from a token's logit once for each time the output contains it", 0
    )
    repetition_penalty: Annotated[float, Field(gt=0)] | None = about(
        "above 1 makes tokens that the prompt or the output contains less likely: "
        "their positive logits are divided by it, negative ones multiplied",
        words=MODELS_OWN.format("1"),
    )
    logit_bias: LogitBiasField = about(
        "token id (as a string) to a number from -100 to 100 that is added to its logit",
        {},
        empty=(),
    )
    stream: bool | None = about(
        "answer with server-sent events, one for each piece of text as it comes", False
    )
    stream_options: StreamOptions | None = about("only with stream", {})
    skip_special_tokens: bool | None = about("leave special tokens out of the text", True)
    add_special_tokens: bool | None = about(
        "let the tokenizer add its special tokens (BOS, EOS) to the prompt",
        words="completions: true; chat: false, for the chat template writes them",
    )
    return_token_ids: bool | None = about(
        "add token_ids to each choice, and prompt_token_ids", False
    )
    return_tokens: bool | None = about("another name of return_token_ids", False)
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = about(
        "with --scheduling-policy priority, requests with lower values run first", 0
    )
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = about(
        "only requests with the same salt share KV blocks", words="one shared by all"
    )
    user: str | None = about("a label of yours, for the debug log")


class CompletionRequest(SamplingFields):
    """POST /v1/completions"""

    prompt: PromptField = Field(
        description="what to continue: a text, a list of texts, token ids, or a list of such lists"
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = about(
        "give the log-probability of each token and of this many alternatives", words="none"
    )
    echo: bool | None = about(
        "begin the text with the prompt (and its log-probabilities, with logprobs)", False
    )


class ChatMessage(Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"] = Field(
        description="who speaks; developer is another name of system"
    )
    content: ContentField = Field(
        description="what is said: a text, or an array of parts of type text; null: nothing"
    )
    name: str | None = about("the speaker's name, if the chat template shows it")


class ChatCompletionRequest(SamplingFields):
    """POST /v1/chat/completions"""

    messages: Annotated[list[ChatMessage], Field(min_length=1)] = Field(
        description="the conversation so far: objects with role and content"
    )
    logprobs: bool | None = about("give the log-probability of each token", False)
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = about(
        "alternatives to give with each token (only with logprobs)", 0
    )
    add_generation_prompt: bool | None = about(
        "let the chat template begin the assistant's turn", True
    )
    continue_final_message: bool | None = about(
        "continue the last message (only with add_generation_prompt false)", False
    )
    chat_template_kwargs: dict[str, Any] | None = about("variables for the chat template", {})
    metadata: dict[str, str] | None = about("labels of yours, for the debug log", {})


class TokenizeRequest(Body):
    """POST /tokenize: a prompt or a conversation."""

    model: str | None = about("name of the model", words="the one that is served")
    prompt: str | None = about("text to tokenize; this or messages")
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = about(
        "conversation to render and tokenize; this or prompt"
    )
    add_special_tokens: bool | None = about(
        "add the tokenizer's special tokens", words="prompt: true; messages: false"
    )
    add_generation_prompt: bool | None = about("as in chat completions", True)
    continue_final_message: bool | None = about("as in chat completions", False)
    chat_template_kwargs: dict[str, Any] | None = about("variables for the chat template", {})
    return_token_strs: bool | None = about("give each token's text too", False)


class DetokenizeRequest(Body):
    """POST /detokenize"""

    model: str | None = about("name of the model", words="the one that is served")
    tokens: list[Annotated[int, Field(ge=0)]] = Field(description="token ids")

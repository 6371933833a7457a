"""Fields that a body may not hold: what the API knows and Octavo does not do, and plain typos.

Null, and the value that means "as without it", pass: clients send them unasked.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from octavo.errors import RequestError, UnsupportedParameterError
from octavo.server.fields import shown
from octavo.server.requests import Body, ChatCompletionRequest, CompletionRequest

_TOOLS = "tool calls are not supported; describe the tools in a message and parse the text"
_GUIDED = "structured output is not supported; ask for the format in the prompt"
_OUT = "leave it out"
_AUDIO = "this server makes text only"
_EFFORT = "reasoning is up to the model and its chat template; leave it out"

# name -> (values that change nothing, what to do instead)
UNSUPPORTED: Mapping[str, tuple[tuple[object, ...], str]] = {
    "suffix": (("",), "insertion is not supported; put all context in the prompt"),
    "tools": (([],), _TOOLS),
    "tool_choice": (("none",), _TOOLS),
    "parallel_tool_calls": ((True, False), _TOOLS),
    "functions": (([],), _TOOLS),
    "function_call": (("none",), _TOOLS),
    "response_format": (({"type": "text"},), _GUIDED),
    "guided_json": ((), _GUIDED),
    "guided_regex": ((), _GUIDED),
    "guided_choice": ((), _GUIDED),
    "guided_grammar": ((), _GUIDED),
    "guided_decoding_backend": ((), _GUIDED),
    "guided_whitespace_pattern": ((), _GUIDED),
    "structured_outputs": ((), _GUIDED),
    "grammar": ((), _GUIDED),
    "json_schema": ((), _GUIDED),
    "audio": ((), _AUDIO),
    "modalities": ((["text"],), _AUDIO),
    "prediction": ((), "predicted outputs are not supported; leave it out"),
    "reasoning_effort": (("none",), _EFFORT),
    "reasoning": ((), _EFFORT),
    "include_reasoning": ((True,), _EFFORT),
    "verbosity": (("medium",), "state the wished length in a message"),
    "service_tier": (("auto", "default"), "use `priority`"),
    "store": ((False,), "nothing is stored by this server; leave it out"),
    "web_search_options": ((), "this server cannot search; leave it out"),
    "moderation": ((), _OUT),
    "safety_identifier": ((), "use `user`"),
    "prompt_cache_key": ((), "the prefix cache is automatic; `cache_salt` keeps tenants apart"),
    "prompt_cache_retention": ((), "the prefix cache is automatic; leave it out"),
    "prompt_logprobs": ((), "use `echo` with `logprobs` on /v1/completions"),
    "truncate_prompt_tokens": ((-1,), "shorten the prompt before sending it"),
    "allowed_token_ids": ((), "use `logit_bias` with 100 for the allowed ids"),
    "bad_words": (([],), "use `logit_bias` with -100 for their token ids"),
    "spaces_between_special_tokens": ((True,), _OUT),
    "detokenize": ((True,), "use `return_token_ids`; text is always made"),
    "return_tokens_as_token_ids": ((False,), "use `return_token_ids`"),
    "prompt_embeds": ((), "send text or token ids"),
    "mm_processor_kwargs": (({},), "this server reads text only"),
    "documents": (([],), "put the documents in a message"),
    "chat_template": ((), "the server's template is used (--chat-template changes it)"),
    "logits_processors": (([],), "use `logit_bias`"),
    "kv_transfer_params": ((), _OUT),
    "vllm_xargs": (({},), _OUT),
    "request_id": ((), "the server names requests; read `id` in the response"),
    "min_new_tokens": ((), "use `min_tokens`"),
    "max_new_tokens": ((), "use `max_tokens`"),
    "n_predict": ((), "use `max_tokens`"),
    "cache_prompt": ((True,), "the prefix cache is on for all; `cache_salt` keeps requests apart"),
    "typical_p": ((1, 1.0), "use `top_p` or `min_p`"),
    "mirostat": ((0,), "use `temperature` with `top_p` or `min_p`"),
    "include_obfuscation": ((False,), _OUT),
    "tool_calls": (([],), _TOOLS),
    "tool_call_id": ((), _TOOLS),
    "refusal": ((), "put the text in `content`"),
    "annotations": (([],), _OUT),
    "reasoning_content": (("",), "put the text in `content`"),
}


def refuse_extra_fields(body: Body, path: str = "") -> None:
    """Raise for the first field of `body`, or of a body in it, that is not one of its own."""
    for name, value in (body.model_extra or {}).items():
        param = path + name
        if name not in UNSUPPORTED:
            raise RequestError(_unknown(body, name, param), param, "unknown_parameter")
        neutral, remedy = UNSUPPORTED[name]
        if value is None or any(type(value) is type(x) and value == x for x in neutral):
            continue
        raise UnsupportedParameterError(
            f"`{param}` is not supported by this server (got {shown(value)}); {remedy}", param
        )
    if isinstance(body, CompletionRequest | ChatCompletionRequest) and body.stream_options:
        refuse_extra_fields(body.stream_options, "stream_options.")
    for i, message in enumerate(getattr(body, "messages", None) or ()):
        refuse_extra_fields(message, f"messages[{i}].")


def _unknown(body: Body, name: str, param: str) -> str:
    near = difflib.get_close_matches(name, type(body).model_fields, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "remove it; /docs lists the fields"
    return f"unknown field `{param[:80]}`; {hint}"

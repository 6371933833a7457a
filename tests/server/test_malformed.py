"""Bad requests: each gets the right status, names its field, and says what is expected."""

from __future__ import annotations

import json

import pytest

from tests.server.fake_engine import VOCAB

COMPLETION = "/v1/completions"
CHAT = "/v1/chat/completions"
HI = {"role": "user", "content": "Hi"}

# name: path, body, param, words the message holds
BODIES = {
    "no prompt": (COMPLETION, {}, "prompt", ["missing"]),
    "prompt null": (COMPLETION, {"prompt": None}, "prompt", ["string", "null"]),
    "prompt number": (COMPLETION, {"prompt": 3}, "prompt", ["token ids", "integer: 3"]),
    "prompt object": (COMPLETION, {"prompt": {}}, "prompt", ["token ids", "an object"]),
    "prompt empty text": (COMPLETION, {"prompt": ""}, "prompt", ["at least one token"]),
    "prompt empty list": (COMPLETION, {"prompt": []}, "prompt", ["empty array"]),
    "prompt empty inner list": (COMPLETION, {"prompt": [[1], []]}, "prompt", ["prompt[1]"]),
    "prompt mixed": (COMPLETION, {"prompt": ["a", [1]]}, "prompt", ["one type", "prompt[1]"]),
    "prompt float ids": (COMPLETION, {"prompt": [1, 2.5]}, "prompt", ["2.5", "prompt[1]"]),
    "prompt bool ids": (COMPLETION, {"prompt": [1, True]}, "prompt", ["true", "prompt[1]"]),
    "prompt inner text": (COMPLETION, {"prompt": [[1, "a"]]}, "prompt", ["prompt[0][1]"]),
    "prompt id negative": (COMPLETION, {"prompt": [5, -1]}, "prompt", ["-1", "position 1"]),
    "prompt id large": (COMPLETION, {"prompt": [VOCAB]}, "prompt", ["256", "257"]),
    "prompts too many": (COMPLETION, {"prompt": ["a"] * 1025}, "prompt", ["1024", "1025"]),
    "prompt too long": (COMPLETION, {"prompt": "a" * 4096}, "prompt", ["4096"]),
    "max_tokens zero": (COMPLETION, {"prompt": "a", "max_tokens": 0}, "max_tokens", ["at least 1"]),
    "max_tokens negative": (COMPLETION, {"prompt": "a", "max_tokens": -5}, "max_tokens", ["-5"]),
    "max_tokens text": (
        COMPLETION, {"prompt": "a", "max_tokens": "5"}, "max_tokens", ["an integer", "'5'"]),
    "max_tokens float": (COMPLETION, {"prompt": "a", "max_tokens": 1.5}, "max_tokens", ["1.5"]),
    "max_tokens huge": (COMPLETION, {"prompt": "a", "max_tokens": 10**30}, "max_tokens", ["number"]),
    "max_tokens beyond": (COMPLETION, {"prompt": "a", "max_tokens": 5000}, "max_tokens", ["5000"]),
    "both maxima": (
        CHAT, {"messages": [HI], "max_tokens": 5, "max_completion_tokens": 6},
        "max_completion_tokens", ["5 and 6"]),
    "min over max": (
        COMPLETION, {"prompt": "a", "max_tokens": 2, "min_tokens": 3}, "min_tokens", ["2", "3"]),
    "temperature negative": (
        COMPLETION, {"prompt": "a", "temperature": -0.1}, "temperature", ["at least 0", "-0.1"]),
    "temperature text": (
        COMPLETION, {"prompt": "a", "temperature": "hot"}, "temperature", ["number", "hot"]),
    "top_p zero": (COMPLETION, {"prompt": "a", "top_p": 0}, "top_p", ["more than 0", "at most 1"]),
    "top_p large": (COMPLETION, {"prompt": "a", "top_p": 1.1}, "top_p", ["at most 1", "1.1"]),
    "top_k": (COMPLETION, {"prompt": "a", "top_k": -2}, "top_k", ["-1", "-2"]),
    "min_p": (COMPLETION, {"prompt": "a", "min_p": 2}, "min_p", ["at most 1"]),
    "seed": (COMPLETION, {"prompt": "a", "seed": "x"}, "seed", ["integer"]),
    "n zero": (COMPLETION, {"prompt": "a", "n": 0}, "n", ["at least 1", "at most 128", "0"]),
    "n bool": (COMPLETION, {"prompt": "a", "n": True}, "n", ["integer", "true"]),
    "n beyond sequences": (COMPLETION, {"prompt": "a", "n": 33}, "n", ["32", "33"]),
    "best_of": (COMPLETION, {"prompt": "a", "n": 3, "best_of": 2}, "best_of", ["at least n (3)"]),
    "best_of streamed": (
        COMPLETION, {"prompt": "a", "best_of": 3, "stream": True}, "best_of",
        ["n (1)", "got 3", "leave `stream` out"]),
    "best_of beyond sequences": (CHAT, {"messages": [HI], "best_of": 33}, "best_of", ["32", "33"]),
    "beams beyond sequences": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "beam_width": 33}, "beam_width",
        ["32", "33"]),
    "beams fewer than n": (
        CHAT, {"messages": [HI], "use_beam_search": True, "beam_width": 2, "n": 3}, "beam_width",
        ["at least n (3)"]),
    "two widths": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "beam_width": 2, "best_of": 3},
        "best_of", ["beam_width (2)", "3"]),
    "beams drawn": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "temperature": 0.7}, "temperature",
        ["0 or 1", "0.7"]),
    "beams filtered": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "top_k": 5}, "top_k", ["0", "5"]),
    "beams and stop": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "stop": "x"}, "stop",
        ["stop_token_ids"]),
    "beams of nothing": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "max_tokens": 0, "echo": True},
        "max_tokens", ["at least 1"]),
    "early_stopping": (
        COMPLETION, {"prompt": "a", "use_beam_search": True, "early_stopping": "maybe"},
        "early_stopping", ["never"]),
    "length_penalty alone": (
        COMPLETION, {"prompt": "a", "length_penalty": 2}, "length_penalty",
        ["1.0", "use_beam_search", "2.0"]),
    "beam_width alone": (
        COMPLETION, {"prompt": "a", "beam_width": 2}, "beam_width", ["use_beam_search", "2"]),
    "early_stopping alone": (
        CHAT, {"messages": [HI], "early_stopping": True}, "early_stopping", ["use_beam_search"]),
    "stop number": (COMPLETION, {"prompt": "a", "stop": 5}, "stop", ["string", "5"]),
    "stop empty": (COMPLETION, {"prompt": "a", "stop": ["x", ""]}, "stop", ["stop[1]"]),
    "stop long": (COMPLETION, {"prompt": "a", "stop": "ab" * 600}, "stop", ["1 to 1024"]),
    "stops too many": (COMPLETION, {"prompt": "a", "stop": ["x"] * 17}, "stop", ["16", "17"]),
    "stop token": (
        COMPLETION, {"prompt": "a", "stop_token_ids": [999]}, "stop_token_ids", ["257", "999"]),
    "stop token text": (
        COMPLETION, {"prompt": "a", "stop_token_ids": [1, "x"]}, "stop_token_ids[1]", ["'x'"]),
    "penalty": (
        COMPLETION, {"prompt": "a", "presence_penalty": 3}, "presence_penalty",
        ["at least -2", "at most 2", "3"]),
    "repetition": (
        COMPLETION, {"prompt": "a", "repetition_penalty": 0}, "repetition_penalty", ["more than 0"]),
    "bias key": (COMPLETION, {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias", ["'x'"]),
    "bias value": (COMPLETION, {"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias", ["100"]),
    "bias token": (COMPLETION, {"prompt": "a", "logit_bias": {"999": 1}}, "logit_bias", ["999"]),
    "bias list": (COMPLETION, {"prompt": "a", "logit_bias": [1]}, "logit_bias", ["an object"]),
    "logprobs many": (COMPLETION, {"prompt": "a", "logprobs": 21}, "logprobs", ["at most 20"]),
    "logprobs bool": (COMPLETION, {"prompt": "a", "logprobs": True}, "logprobs", ["an integer"]),
    "chat logprobs number": (CHAT, {"messages": [HI], "logprobs": 3}, "logprobs", ["true or false"]),
    "top_logprobs alone": (
        CHAT, {"messages": [HI], "top_logprobs": 3}, "top_logprobs", ["`logprobs`"]),
    "stream text": (COMPLETION, {"prompt": "a", "stream": "yes"}, "stream", ["true or false"]),
    "stream_options alone": (
        COMPLETION, {"prompt": "a", "stream_options": {}}, "stream_options", ["`stream`"]),
    "stream_options field": (
        COMPLETION, {"prompt": "a", "stream": True, "stream_options": {"include_use": True}},
        "stream_options.include_use", ["include_usage"]),
    "priority": (COMPLETION, {"prompt": "a", "priority": "high"}, "priority", ["integer"]),
    "salt": (COMPLETION, {"prompt": "a", "cache_salt": ""}, "cache_salt", ["1 character"]),
    "typo": (COMPLETION, {"prompt": "a", "max_token": 5}, "max_token", ["mean `max_tokens`"]),
    "unknown": (COMPLETION, {"prompt": "a", "zzzzzz": 5}, "zzzzzz", ["unknown", "/docs"]),
    "no messages": (CHAT, {}, "messages", ["missing"]),
    "messages empty": (CHAT, {"messages": []}, "messages", ["at least 1 item"]),
    "messages text": (CHAT, {"messages": "Hi"}, "messages", ["an array", "'Hi'"]),
    "message text": (CHAT, {"messages": ["Hi"]}, "messages[0]", ["an object", "'Hi'"]),
    "no role": (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role", ["missing"]),
    "role": (
        CHAT, {"messages": [HI, {"role": "robot", "content": "x"}]}, "messages[1].role",
        ["'user'", "'robot'"]),
    "no content": (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content", ["missing"]),
    "content number": (
        CHAT, {"messages": [{"role": "user", "content": 3}]}, "messages[0].content", ["string"]),
    "part without type": (
        CHAT, {"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content",
        ["`type`", "part 0"]),
    "metadata": (CHAT, {"messages": [HI], "metadata": {"a": 1}}, "metadata.a", ["a string"]),
    "template kwargs": (
        CHAT, {"messages": [HI], "chat_template_kwargs": {"messages": []}},
        "chat_template_kwargs", ["`messages`"]),
    "text too long": (COMPLETION, {"prompt": "a" * 3_000_000}, "prompt", ["context", "3000000"]),
    "array": (COMPLETION, [], None, ["an object", "array"]),
    "detokenize": ("/detokenize", {"tokens": [1, 999]}, "tokens", ["999", "256"]),
    "detokenize text": ("/detokenize", {"tokens": "x"}, "tokens", ["an array"]),
    "tokenize nothing": ("/tokenize", {}, "prompt", ["`messages`", "neither"]),
    "tokenize both": ("/tokenize", {"prompt": "x", "messages": [HI]}, "prompt", ["both"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body(live, name):
    path, body, param, words = BODIES[name]
    before = len(live.engine.requests)
    answer = live.http.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["code"]
    for word in words:
        assert word in error["message"]
    assert "Traceback" not in answer.text
    assert len(live.engine.requests) == before
    assert live.http.get("/health").status_code == 200


# Raw bytes that are no JSON, or hold what JSON cannot.
RAW = {
    "empty": (b"", ["EOF"]),
    "cut off": (b'{"prompt": "a"', ["EOF"]),
    "not JSON": (b"prompt=a", ["not JSON"]),
    "bad UTF-8": (b'{"prompt": "\xff\xfe"}', ["unicode"]),
    "lone surrogate": (b'{"prompt": "\\ud800"}', ["not JSON"]),
    "control character": (b'{"prompt": "a\x00b"}', ["control character"]),
    "deep": (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ["recursion"]),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', ["finite number"]),
    "Infinity": (b'{"prompt": "a", "temperature": Infinity}', ["finite number"]),
    "beyond a double": (b'{"prompt": "a", "top_p": 1e999}', ["finite number"]),
    "NaN bias": (b'{"prompt": "a", "logit_bias": {"1": NaN}}', ["-100 to 100"]),
}


@pytest.mark.parametrize("name", RAW)
def test_a_body_that_is_not_json(live, name):
    data, words = RAW[name]
    answer = live.http.post(COMPLETION, content=data, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    for word in words:
        assert word in answer.json()["error"]["message"]
    assert live.http.get("/health").status_code == 200


UNSUPPORTED = {
    "suffix": (COMPLETION, " end"),
    "prompt_logprobs": (COMPLETION, 1),
    "guided_json": (COMPLETION, {"type": "object"}),
    "guided_regex": (CHAT, "a+"),
    "structured_outputs": (CHAT, {"regex": "a"}),
    "response_format": (CHAT, {"type": "json_object"}),
    "tools": (CHAT, [{"type": "function"}]),
    "tool_choice": (CHAT, "auto"),
    "functions": (CHAT, [{"name": "f"}]),
    "function_call": (CHAT, "auto"),
    "audio": (CHAT, {"voice": "x"}),
    "modalities": (CHAT, ["text", "audio"]),
    "prediction": (CHAT, {"type": "content"}),
    "reasoning_effort": (CHAT, "low"),
    "verbosity": (CHAT, "low"),
    "service_tier": (CHAT, "priority"),
    "store": (CHAT, True),
    "web_search_options": (CHAT, {}),
}


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(live, field):
    path, value = UNSUPPORTED[field]
    body = {"prompt": "a"} if path == COMPLETION else {"messages": [HI]}
    answer = live.http.post(path, json={**body, field: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert error["code"] == "unsupported_parameter"
    assert f"`{field}` is not supported" in error["message"]
    assert live.http.post(path, json={**body, field: None}).status_code == 200


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_parts_that_are_not_text(live, kind):
    parts = [{"type": "text", "text": "Look"}, {"type": kind, kind: {}}]
    answer = live.http.post(CHAT, json={"messages": [{"role": "user", "content": parts}]})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "messages[0].content")
    assert kind in error["message"]


def test_tool_calls_in_a_message_are_refused_but_null_ones_pass(live):
    message = {"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}
    answer = live.http.post(CHAT, json={"messages": [HI, message]})
    assert answer.json()["error"]["param"] == "messages[1].tool_calls"
    message |= {"tool_calls": None, "refusal": None, "audio": None, "annotations": []}
    assert live.http.post(CHAT, json={"messages": [HI, message]}).status_code == 200


def test_values_that_change_nothing_pass(live):
    neutral = {
        "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "store": False,
        "service_tier": "auto", "parallel_tool_calls": True, "temperature": None, "stop": None,
        "user": "u", "metadata": {"a": "b"}, "logit_bias": None, "stream_options": None,
    }  # fmt: skip
    assert live.http.post(CHAT, json={"messages": [HI], **neutral}).status_code == 200


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type(live, media):
    headers = {"content-type": media} if media else {}
    answer = live.http.post(COMPLETION, content=b'{"prompt": "a"}', headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


def test_too_large_a_body(launch):
    live = launch(max_body_bytes=1000)
    body = json.dumps({"prompt": "a" * 2000}).encode()
    headers = {"content-type": "application/json"}
    declared = live.http.post(COMPLETION, content=body, headers=headers)
    chunked = live.http.post(COMPLETION, content=iter([body[:900], body[900:]]), headers=headers)
    for answer in (declared, chunked):
        assert answer.status_code == 413
        assert "1000 bytes" in answer.json()["error"]["message"]
    assert live.http.get("/health").status_code == 200


def test_no_such_path_and_method(live):
    answer = live.http.get("/v1/nothing")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    answer = live.http.get(COMPLETION)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "POST" in answer.json()["error"]["message"]


def test_chat_without_a_template(launch):
    live = launch(chat_template=None)
    answer = live.http.post(CHAT, json={"messages": [HI]})
    assert answer.status_code == 400
    assert "--chat-template" in answer.json()["error"]["message"]


def test_a_fault_of_ours_shows_no_traceback(live, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(live.engine, "generate", broken)
    answer = live.http.post(COMPLETION, json={"prompt": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "secret" not in answer.text
    assert live.http.get("/health").status_code == 200

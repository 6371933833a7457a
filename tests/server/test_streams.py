"""Streams on the wire: events, bytes, what comes when, and what happens when the client leaves."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest

from tests.server.fake_engine import FakeEngine, Script

TRICKY = '👩‍👩‍👧 می‌خواهم 漢字 \u2028\u0085 "q" \\ \n end'


def events(answer):
    """The data of every event; the framing is checked on the way."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.content.split(b"\n\n")
    assert parts.pop() == b""
    assert all(p.startswith(b"data: ") and b"\n" not in p for p in parts)
    return [p[6:] if p[6:] == b"[DONE]" else json.loads(p[6:]) for p in parts]


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.mark.parametrize("hold", [1, 3])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_characters_come_through_byte_for_byte(launch, path, hold):
    live = launch(FakeEngine(Script(text=TRICKY, hold=hold)))
    body = (
        {"prompt": "x"} if "chat" not in path else {"messages": [{"role": "user", "content": "x"}]}
    )
    body |= {"max_tokens": 500, "stream": True, "return_token_ids": True}
    chunks = [e for e in events(live.http.post(path, json=body)) if e != b"[DONE]"]
    choices = [c for e in chunks for c in e["choices"]]
    text = "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)
    assert text.encode() == TRICKY.encode()
    ids = [i for c in choices for i in c.get("token_ids", [])]
    assert live.context.tokenizer.decode(ids) == TRICKY
    whole = live.http.post(path, json=body | {"stream": False}).json()["choices"][0]
    assert whole.get("text", whole.get("message", {}).get("content")) == TRICKY
    assert whole["token_ids"] == ids


def test_every_token_has_a_chunk_even_without_text(launch):
    live = launch(FakeEngine(Script(text="éé", hold=4)))
    body = {"prompt": "ab", "stream": True, "return_tokens": True}
    *chunks, done = events(live.http.post("/v1/completions", json=body))
    assert done == b"[DONE]"
    choices = [c["choices"][0] for c in chunks]
    assert [c["text"] for c in choices] == ["", "", "", "éé", ""]
    assert [len(c["token_ids"]) for c in choices] == [1] * 5
    assert [c["finish_reason"] for c in choices] == [None] * 4 + ["stop"]
    assert choices[0]["prompt_token_ids"] == [98, 99]
    assert all("prompt_token_ids" not in c for c in choices[1:])
    assert all("usage" not in c for c in chunks)


def test_usage_in_every_chunk(live):
    body = {
        "prompt": "ab", "max_tokens": 3, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }  # fmt: skip
    *chunks, _ = events(live.http.post("/v1/completions", json=body))
    assert [c["usage"]["completion_tokens"] for c in chunks] == [1, 2, 3, 3]
    assert chunks[-1]["choices"] == []


def test_echo_with_logprobs_waits_for_the_prompts(live):
    body = {"prompt": "ab", "max_tokens": 2, "n": 2, "echo": True, "logprobs": 0, "stream": True}
    *chunks, _ = events(live.http.post("/v1/completions", json=body))
    text, tokens, offsets = {0: "", 1: ""}, {0: [], 1: []}, {0: [], 1: []}
    for choice in (c["choices"][0] for c in chunks):
        text[choice["index"]] += choice["text"]
        tokens[choice["index"]] += choice["logprobs"]["tokens"]
        offsets[choice["index"]] += choice["logprobs"]["text_offset"]
    assert text == {0: "abHe", 1: "abHe"}
    assert tokens == {i: ["a", "b", "H", "e"] for i in (0, 1)}
    assert offsets == {i: [0, 1, 2, 3] for i in (0, 1)}


def test_several_prompts_stream_side_by_side(launch):
    live = launch(FakeEngine(Script(text="abc", delay=0.001)))
    body = {"prompt": ["x", "y", "z"], "stream": True, "stream_options": {"include_usage": True}}
    *chunks, _ = events(live.http.post("/v1/completions", json=body))
    usage = chunks.pop()["usage"]
    text = dict.fromkeys(range(3), "")
    for choice in (c["choices"][0] for c in chunks):
        text[choice["index"]] += choice["text"]
    assert text == dict.fromkeys(range(3), "abc")
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 12)


def test_an_error_in_a_stream_is_its_last_event(launch):
    live = launch(FakeEngine(Script(fail_at=2)))
    *chunks, last = events(live.http.post("/v1/completions", json={"prompt": "x", "stream": True}))
    assert len(chunks) == 2
    assert last["error"]["message"] == "logits that are not numbers"
    assert last["error"]["type"] == "server_error"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["x", ["x", "y"]])
def test_a_client_that_leaves_frees_its_request(launch, stream, prompt):
    engine = FakeEngine(Script(text="z" * 4000, delay=0.01))
    live = launch(engine)
    data = json.dumps({"prompt": prompt, "stream": stream, "max_tokens": 4000}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(live.url.rsplit(":", 1)[1]))) as sock:
        sock.sendall(head.encode() + data)
        wait_for(lambda: len(engine.open) == (2 if isinstance(prompt, list) else 1))
        if stream:
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
    wait_for(lambda: not engine.open)
    assert len(engine.aborted) == (2 if isinstance(prompt, list) else 1)


def test_prompts_are_admitted_together_or_not_at_all(launch):
    engine = FakeEngine(max_model_len=32)
    live = launch(engine)
    answer = live.http.post("/v1/completions", json={"prompt": ["x", "y" * 50], "stream": True})
    assert answer.status_code == 400
    assert (len(engine.aborted), engine.open) == (1, {})


def test_the_bench_client_reads_it(launch, shared_dir):
    engine = FakeEngine(vocab_size=49152)
    live = launch(engine)
    command = [sys.executable, shared_dir / "bench" / "client.py", "--base", live.url + "/v1"]
    for name, expected in {"a": {"n": 128, "np": 128, "chunks": 128}, "b": {"n": 1}}.items():
        done = subprocess.run(
            [*command, "--model", "tiny", "--test", name], capture_output=True, check=True
        )
        result = json.loads(done.stdout)
        assert "errors" not in result
        assert {k: result[k] for k in expected} == expected

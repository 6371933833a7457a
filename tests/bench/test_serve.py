"""`octavo bench serve` against a real server with the fake engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.conftest import Octavo
from tests.server.conftest import Live
from tests.server.fake_engine import FakeEngine, Script

SMALL = ("--vocab-size", 257, "--random-input-len", 20, "--random-output-len", 6)


def test_counts_and_what_was_sent(octavo: Octavo, launch: Callable[..., Live]) -> None:
    live = launch(FakeEngine(Script(cached=8)))
    r = octavo.json(
        "serve", "--base-url", live.url, "--num-prompts", 12, *SMALL, "--max-concurrency", 3
    )
    assert (r["completed"], r["failed"], r["num_prompts"]) == (12, 0, 12)
    assert (r["total_input_tokens"], r["total_output_tokens"]) == (240, 72)
    assert r["total_cached_tokens"] == 96
    assert r["model_id"] == "tiny"
    assert (r["request_rate"], r["max_concurrency"]) == ("inf", 3)
    assert 1 <= r["max_concurrent_requests"] <= 3
    assert r["request_throughput"] == pytest.approx(12 / r["duration"])
    assert r["output_throughput"] == pytest.approx(72 / r["duration"])
    assert r["total_token_throughput"] == pytest.approx(312 / r["duration"])
    for name in ("ttft", "tpot", "itl", "e2el"):
        assert 0 < r[f"median_{name}_ms"] <= r[f"p99_{name}_ms"]
    assert r["mean_ttft_ms"] < r["mean_e2el_ms"]
    assert "ttfts" not in r
    sent = live.engine.requests
    assert len(sent) == 13  # one of them the warm-up
    prompts = [tuple(prompt) for prompt, _, _ in sent]
    assert len(set(prompts)) == 13
    assert all(len(p) == 20 for p in prompts)
    assert prompts[0] == prompts[1][::-1]  # as long, with another beginning
    params = sent[-1][1]
    assert (params.max_tokens, params.temperature, params.ignore_eos) == (6, 0.0, True)


def test_the_block_on_standard_output(octavo: Octavo, launch: Callable[..., Live]) -> None:
    live = launch()
    port = live.url.rsplit(":", 1)[1]
    args = ("--port", port, "--num-prompts", 3, "--goodput", "ttft:60000", "tpot:60000", *SMALL[:2])
    code, out, err = octavo(
        "serve", *args, "--metric-percentiles", "50,99.9", "--random-output-len", 3
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].strip("=") == " Serving Benchmark Result "
    values = {line[:40].strip(): line[40:].strip() for line in lines if ":" in line}
    assert values["Successful requests:"] == "3"
    assert values["Total generated tokens:"] == "9"
    assert values["Request goodput (req/s):"] == values["Request throughput (req/s):"]
    assert {"P50 TTFT (ms):", "P99.9 E2EL (ms):", "Median ITL (ms):"} <= set(values)


def test_details_and_a_file(octavo: Octavo, launch: Callable[..., Live], tmp_path: Path) -> None:
    live = launch(FakeEngine(Script(text="héllo")))
    target = tmp_path / "result.json"
    args = ("--base-url", live.url + "/v1/", "--num-prompts", 4, *SMALL, "--save-detailed")
    code, out, _ = octavo("serve", *args, "--json", target, "--label", "x")
    assert code == 0
    assert "Successful requests" in out
    r = json.loads(target.read_text())
    assert r["generated_texts"] == ["héllo"] * 4
    assert r["errors"] == [""] * 4
    assert r["input_lens"] == [20] * 4
    assert all(
        len(itl) == 5 for itl in r["itls"]
    )  # six bytes; half a character has no text, but is a token
    assert r["label"] == "x"


def test_a_rate_and_a_trace_set_the_times(
    octavo: Octavo, launch: Callable[..., Live], tmp_path: Path
) -> None:
    live = launch()
    args = ("--base-url", live.url, *SMALL, "--save-detailed")
    r = octavo.json("serve", *args, "--num-prompts", 6, "--request-rate", 40, "--seed", 3)
    starts = [t - r["start_times"][0] for t in r["start_times"]]
    assert r["request_rate"] == 40.0
    assert starts == sorted(starts)
    assert starts[-1] > 0.02  # five gaps of 25 ms in the mean
    trace = tmp_path / "trace.jsonl"
    line = {"input_length": 30, "output_length": 4, "hash_ids": [1]}
    trace.write_text("\n".join(json.dumps({"timestamp": 100 * i, **line}) for i in range(3)))
    r = octavo.json("serve", *args, "--dataset-name", "trace", "--dataset-path", trace)
    assert r["request_rate"] == "trace"
    assert r["input_lens"] == [30] * 3
    gaps = [b - a for a, b in zip(r["start_times"], r["start_times"][1:], strict=False)]
    assert all(gap > 0.09 for gap in gaps)


def test_errors_are_counted_and_told(
    octavo: Octavo, launch: Callable[..., Live], tmp_path: Path
) -> None:
    live = launch(FakeEngine(max_model_len=64))
    path = tmp_path / "requests.json"
    good, long = {"prompt": [5] * 8, "max_tokens": 4}, {"prompt": [5] * 80, "max_tokens": 4}
    path.write_text(json.dumps([good, long, good, long, long]))
    args = ("serve", "--base-url", live.url, "--dataset-name", "custom", "--dataset-path", path)
    code, out, err = octavo(*args, "--json", "-")
    r = json.loads(out)
    assert code == 0
    assert (r["completed"], r["failed"], r["total_input_tokens"]) == (2, 3, 16)
    assert err.startswith("3 requests failed: HTTP 400: ")
    assert "64" in err
    path.write_text(json.dumps([long]))
    code, out, err = octavo(*args, "--num-warmups", 0)
    assert code == 1
    assert "octavo: every request failed" in err
    code, out, err = octavo(*args)
    assert code == 1
    assert "the warm-up request to /v1/completions failed: HTTP 400" in err


def test_a_failure_in_a_stream(octavo: Octavo, launch: Callable[..., Live]) -> None:
    live = launch(FakeEngine(Script(fail_at=2)))
    code, _, err = octavo(
        "serve", "--base-url", live.url, "--num-prompts", 2, *SMALL, "--num-warmups", 0
    )
    assert code == 1
    assert "2 requests failed: " in err
    assert "logits that are not numbers" in err


def test_chat_and_text(
    octavo: Octavo, launch: Callable[..., Live], tmp_path: Path, tiny_model: Path
) -> None:
    live = launch()
    path = tmp_path / "requests.json"
    path.write_text(json.dumps([{"prompt": "Who are you?", "max_tokens": 5}]))
    custom = ("--dataset-name", "custom", "--dataset-path", path, "--num-warmups", 0)
    r = octavo.json(
        "serve", "--base-url", live.url, "--backend", "openai-chat", *custom, "--save-detailed"
    )
    assert (r["completed"], r["total_output_tokens"]) == (1, 5)
    assert r["generated_texts"] == ["Hello"]
    assert "".join(map(chr, (i - 1 for i in live.engine.requests[-1][0]))).startswith(
        "user: Who are you?"
    )
    # Token ids become text where ids cannot be sent.
    random = ("--num-prompts", 1, "--random-input-len", 9, "--random-output-len", 5)
    r = octavo.json(
        "serve",
        "--base-url",
        live.url,
        "--backend",
        "openai-chat",
        *random,
        "--tokenizer",
        tiny_model,
    )
    assert r["completed"] == 1
    code, _, err = octavo("serve", "--base-url", live.url, "--prompt-format", "text", *random)
    assert (code, "--tokenizer: needed to make text of token ids" in err) == (2, True)


def test_keys_headers_and_more_fields(octavo: Octavo, launch: Callable[..., Live]) -> None:
    live = launch(api_keys=("secret",))
    args = ("--base-url", live.url, "--num-prompts", 1, *SMALL, "--num-warmups", 0)
    code, _, err = octavo("serve", *args, "--model", "tiny")
    assert (code, "HTTP 401" in err) == (1, True)
    code, _, err = octavo(
        "serve", *args, "--model", "tiny", "--header", "Authorization=Bearer secret"
    )
    assert code == 0, err
    extra = '{"temperature": 0.5, "top_k": 3}'
    code, _, err = octavo("serve", *args, "--api-key", "secret", "--extra-body", extra)
    assert code == 0, err
    params = live.engine.requests[-1][1]
    assert (params.temperature, params.top_k) == (0.5, 3)


def test_no_server(octavo: Octavo, launch: Callable[..., Live]) -> None:
    live = launch()
    live.close()
    args = ("--base-url", live.url, "--ready-check-timeout-sec", 0.2)
    code, _, err = octavo("serve", *args)
    assert code == 1
    assert f"octavo: {live.url}: no answer in 0.2 s" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--request-rate", 0), "--request-rate: expected a number above 0, got 0"),
        (("--max-concurrency", 0), "--max-concurrency: expected at least 1, got 0"),
        (("--goodput", "speed:5"), "--goodput: expected NAME:MILLISECONDS"),
        (("--percentile-metrics", "ttft,x"), "--percentile-metrics: expected some of"),
        (("--metric-percentiles", "200"), "--metric-percentiles: expected numbers"),
        (("--dataset-name", "x"), "--dataset-name"),
        (("--dataset-name", "trace"), "--dataset-path: trace needs a file"),
        (("--num-prompts", 0), "--num-prompts: expected at least 1, got 0"),
        (("--random-range-ratio", 1), "--random-range-ratio: expected 0 up to"),
        (("--header", "x"), "--header: expected Name=Value"),
        (("--extra-body", "[]"), "--extra-body: expected a JSON object"),
        (("--json", "/no/such/folder/x.json"), "--json: expected a file in a folder that exists"),
        (("--base-url", "nowhere"), "--base-url: expected http://HOST:PORT"),
        (
            ("--prompt-format", "ids", "--backend", "openai-chat"),
            "--prompt-format: chat takes text",
        ),
        (("stray",), "unexpected: stray"),
    ],
)
def test_wrong_flags(octavo: Octavo, args: tuple[object, ...], message: str) -> None:
    code, out, err = octavo("serve", "--model", "m", "--num-prompts", 1, *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err

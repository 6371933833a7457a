"""Metrics, schema, pages, tokens."""

from __future__ import annotations

import re
from importlib.resources import files

import httpx
from prometheus_client.parser import text_string_to_metric_families

from octavo.engine.stats import EngineStats
from octavo.request import SamplingParams, TokenLogprob
from octavo.sched.plan import ScheduledSeq, StepPlan
from octavo.server.context import ServingContext
from octavo.server.logprobs import LOWEST, CompletionLogprobWriter, TokenTexts, chat_logprobs
from octavo.server.params import DEFAULT_COMPLETION_TOKENS
from octavo.server.requests import CompletionRequest
from tests.server.fake_engine import ByteTokenizer, FakeEngine

STATES = ("used", "cached", "free")


def samples(live):
    text = live.http.get("/metrics").text
    return {
        (s.name, *sorted(v for k, v in s.labels.items() if k != "model_name")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_metrics_read_the_engine(live):
    seen = samples(live)
    assert seen["octavo_kv_cache_usage_perc",] == 0.25
    states = {s: seen["octavo_kv_blocks", *sorted((s, "device"))] for s in STATES}
    assert states == {"used": 16, "cached": 8, "free": 40}
    assert seen["octavo_num_kv_blocks",] == sum(states.values())
    assert seen["octavo_prefix_cache_hits_total",] == 48
    assert seen["octavo_num_requests_running",] == 0


def test_every_number_of_the_engine_is_shown(launch):
    live = launch()
    numbers = {name: 1000 + i for i, name in enumerate(EngineStats.__dataclass_fields__)}
    live.engine.stats = lambda: EngineStats(**numbers)
    seen = set(samples(live).values())
    apart = {"block_size", "num_host_blocks_total", "num_disk_blocks_total"}
    assert {name for name, number in numbers.items() if number not in seen} == apart
    free = numbers["num_host_blocks_total"] - numbers["num_host_blocks_cached"]
    assert samples(live)["octavo_kv_blocks", "free", "host"] == free


def test_ended_requests_and_steps_fill_the_histograms(launch):
    live = launch()
    live.client.completions.create(model="tiny", prompt="abc", max_tokens=4)
    live.engine.core.on_step(StepPlan(1, (), (ScheduledSeq("s", 0, (1, 2, 3), (0,)),)), 0.1)
    seen = samples(live)
    assert seen["octavo_time_to_first_token_seconds_sum",] == 1.0
    assert seen["octavo_request_queue_time_seconds_sum",] == 0.5
    assert seen["octavo_request_decode_time_seconds_sum",] == 2.0
    assert seen["octavo_e2e_request_latency_seconds_count",] == 1
    assert seen["octavo_inter_token_latency_seconds_count",] == 3
    assert seen["octavo_request_prompt_tokens_sum",] == 3
    assert seen["octavo_request_params_max_tokens_sum",] == 4
    assert seen["octavo_iteration_tokens_total_sum",] == 3
    assert seen["octavo_request_success_total", "stop"] == 1
    assert seen["octavo_request_success_total", "abort"] == 0
    assert seen["http_requests_total", "/v1/completions", "200", "POST"] == 1


def test_unknown_paths_share_one_label(launch):
    live = launch()
    for i in range(5):
        live.http.get(f"/nothing/{i}")
    seen = samples(live)
    assert seen["http_requests_total", "404", "GET", "other"] == 5


def test_health_version_home(live):
    assert live.http.get("/health").json() == {"status": "ok"}
    assert live.http.get("/version").json() == {"version": "1.2.3"}
    assert live.http.get("/").json()["models"] == ["tiny", "org/tiny-alias"]
    page = live.http.get("/", headers={"accept": "text/html"})
    assert page.text.startswith("<!doctype html>")


def test_tokenize_and_back(live):
    answer = live.http.post("/tokenize", json={"prompt": "aé", "return_token_strs": True}).json()
    assert answer["tokens"] == [98, 196, 170]
    assert (answer["count"], answer["max_model_len"]) == (3, 4096)
    assert answer["token_strs"][0] == "a"
    back = live.http.post("/detokenize", json={"tokens": answer["tokens"]}).json()
    assert back == {"prompt": "aé"}
    body = {"messages": [{"role": "developer", "content": "x"}], "add_generation_prompt": False}
    chat = live.http.post("/tokenize", json=body).json()
    assert live.context.tokenizer.decode(chat["tokens"]) == "system: x"


def test_what_the_engine_is_given(live):
    body = {
        "prompt": "a", "max_tokens": 3, "top_k": 5, "min_p": 0.1, "logit_bias": {"7": -100, "3": 1},
        "stop_token_ids": [9], "priority": -2, "cache_salt": "me", "ignore_eos": True, "seed": -5,
        "repetition_penalty": 1.1, "stop": "q", "skip_special_tokens": False, "min_tokens": 1,
        "include_stop_str_in_output": True,
    }  # fmt: skip
    assert live.http.post("/v1/completions", json=body).status_code == 200
    _, params, extra = live.engine.requests[-1]
    assert extra == {"priority": -2, "cache_salt": "me"}
    assert (params.top_k, params.min_p, params.seed, params.min_tokens) == (5, 0.1, -5, 1)
    assert params.logit_bias == ((3, 1.0), (7, -100.0))
    assert (params.stop, params.stop_token_ids) == (("q",), (9,))
    assert params.ignore_eos
    assert params.include_stop_str_in_output
    assert not params.skip_special_tokens
    assert params.repetition_penalty == 1.1


def test_template_fields_reach_the_template(live):
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}], "name": "n"}],
        "add_generation_prompt": False,
        "chat_template_kwargs": {"thinking": False},
    }
    tokens = live.http.post("/tokenize", json=body).json()["tokens"]
    text = live.context.tokenizer.decode(tokens)
    assert text == "user: [{'type': 'text', 'text': 'a'}]\nthinking=False"


def test_the_schema_covers_every_endpoint(live):
    spec = live.http.get("/openapi.json").json()
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/health"} <= set(
        spec["paths"]
    )
    schemas = spec["components"]["schemas"]
    wanted = set(re.findall(r'"#/components/schemas/(\w+)"', httpx.Response(200, json=spec).text))
    assert wanted == set(schemas), "a schema that is not there, or that nothing refers to"
    assert {"200", "400", "401", "500"} <= set(
        spec["paths"]["/v1/completions"]["post"]["responses"]
    )
    assert "422" not in httpx.Response(200, json=spec["paths"]).text
    body = schemas["CompletionRequest"]
    assert body["required"] == ["prompt"]
    assert body["additionalProperties"] is False
    assert {"temperature", "logit_bias", "stop", "echo"} <= set(body["properties"])
    assert schemas["ChatMessage"]["required"] == ["role", "content"]
    assert "prompt_tokens_details" in schemas["Usage"]["properties"]


def test_every_field_of_a_body_is_described_and_has_a_default_or_is_required(live):
    schemas = live.http.get("/openapi.json").json()["components"]["schemas"]
    for kind in ("CompletionRequest", "ChatCompletionRequest", "TokenizeRequest", "ChatMessage"):
        for name, field in schemas[kind]["properties"].items():
            assert field["description"], (kind, name)
            free = {"user", "prompt", "messages", "name"}  # without these nothing is taken
            has_default = {"default", "x-default"} & set(field)
            assert has_default or name in free | set(schemas[kind].get("required", ())), (
                kind,
                name,
            )
    fields = schemas["CompletionRequest"]["properties"]
    assert fields["n"]["default"] == 1
    assert fields["temperature"]["x-default"] == "the model's own, else 1"


def test_the_defaults_in_the_schema_are_those_of_a_request():
    defaults = SamplingParams()
    for name, field in CompletionRequest.model_json_schema()["properties"].items():
        words = field.get("x-default", "")
        if name in SamplingParams.__dataclass_fields__ and name != "max_tokens":
            said = words.rsplit(" ", 1)[1] if words.startswith("the model's own") else ""
            expected = float(said) if said else field.get("default")
            value = getattr(defaults, name)
            if name in ("seed", "logprobs"):
                assert value is None
            else:
                assert (expected or 0) == (value or 0), name
    assert (
        f"completions: {DEFAULT_COMPLETION_TOKENS};"
        in (CompletionRequest.model_json_schema()["properties"]["max_tokens"]["x-default"])
    )


def test_the_fingerprint_tells_backends_apart():
    def fingerprint(*backend: str, version: str = "1") -> str:
        context = ServingContext(
            engine=FakeEngine(), tokenizer=ByteTokenizer(), model_names=("m",), version=version,
            root="/any/where", backend=backend,
        )  # fmt: skip
        return context.system_fingerprint

    one = fingerprint("model", "cpu-avx2", "auto", "", "float16")
    assert one == fingerprint("model", "cpu-avx2", "auto", "", "float16")
    others = {
        fingerprint("model", "cpu-avx512", "auto", "", "float16"),
        fingerprint("model", "cpu-avx2", "auto", "q8", "float16"),
        fingerprint("model", "cpu-avx2", "auto", "", "float32"),
        fingerprint("model", "cpu-avx2", "auto", "", "float16", version="2"),
    }
    assert len(others | {one}) == 5


def test_the_docs_page_needs_nothing_from_elsewhere(live):
    page = live.http.get("/docs")
    assert page.status_code == 200
    assert page.text == files("octavo.server").joinpath("static/docs.html").read_text("utf-8")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_text_offsets_count_characters_of_the_text():
    tokenizer = ByteTokenizer()
    writer = CompletionLogprobWriter(TokenTexts(tokenizer))
    ids = tokenizer.encode("aé漢b")
    entries = [TokenLogprob(i, -1.0) for i in ids]
    first, second = writer.write(ids[:4], entries[:4]), writer.write(ids[4:], entries[4:])
    assert first.text_offset + second.text_offset == [0, 1, 1, 2, 2, 2, 3]
    assert first.tokens[:3] == ["a", "bytes:\\xc3", "bytes:\\xa9"]


def test_minus_infinity_is_written_as_a_number():
    entry = TokenLogprob(98, float("-inf"), ((99, float("-inf")),))
    texts = TokenTexts(ByteTokenizer())
    token = chat_logprobs([entry], texts).content[0]
    assert token.logprob == token.top_logprobs[0].logprob == LOWEST
    tops = CompletionLogprobWriter(texts).write([98], [entry]).top_logprobs[0]
    assert tops == {"b": LOWEST, "a": LOWEST}


def test_an_engine_is_started_and_stopped_with_the_app(launch):
    engine = FakeEngine()
    live = launch(engine)
    assert engine.is_running
    live.close()
    assert not engine.is_running

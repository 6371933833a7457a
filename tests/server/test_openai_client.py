"""What the openai package sees: shapes, streams and typed exceptions."""

from __future__ import annotations

import openai
import pytest

from octavo.request import SamplingParams
from tests.server.fake_engine import FakeEngine, Script

TEXT = "Hello there, world."


def test_chat_over_two_turns(live):
    messages = [{"role": "user", "content": "Hi"}]
    first = live.client.chat.completions.create(model="tiny", messages=messages)
    assert first.object == "chat.completion"
    assert first.id.startswith("chatcmpl-")
    assert first.model == "tiny"
    choice = first.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", TEXT)
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None

    messages += [choice.message.model_dump(), {"role": "user", "content": "More"}]
    second = live.client.chat.completions.create(model="tiny", messages=messages)
    prompt = live.context.tokenizer.decode(live.engine.requests[-1][0])
    assert prompt == f"user: Hi\nassistant: {TEXT}\nuser: More\nassistant:"
    usage = second.usage
    assert usage.prompt_tokens == len(prompt)
    assert usage.completion_tokens == len(TEXT) + 1
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == 0


def test_chat_stream_equals_the_whole_answer(live):
    stream = live.client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {c.id for c in chunks} == {chunks[0].id}
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == TEXT
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(TEXT) + 1
    assert all(c.usage is None for c in chunks[:-1])


def test_three_choices_with_a_seed(live):
    def ask():
        answer = live.client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "Hi"}], n=3, seed=7
        )
        return [(c.index, c.message.content) for c in answer.choices]

    assert ask() == [(i, f"7/{i} {TEXT}") for i in range(3)]
    assert ask() == ask()


def test_three_choices_streamed(live):
    texts = ["", "", ""]
    for chunk in live.client.completions.create(
        model="tiny", prompt="x", n=3, seed=7, max_tokens=100, stream=True
    ):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [f"7/{i} {TEXT}" for i in range(3)]


def test_stop_string(live):
    answer = live.client.completions.create(
        model="tiny", prompt="x", stop=["there", "zzz"], max_tokens=100
    )
    assert answer.choices[0].text == "Hello "
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].stop_reason == "there"


def test_max_tokens_ends_with_length_and_defaults_to_sixteen(live):
    answer = live.client.completions.create(model="tiny", prompt="x", max_tokens=5)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", "length")
    answer = live.client.completions.create(model="tiny", prompt="x")
    assert answer.usage.completion_tokens == 16
    live.client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], max_completion_tokens=3
    )
    assert live.engine.requests[-1][1].max_tokens == 3


def test_a_list_of_prompts_is_numbered_prompt_by_prompt(live):
    prompts = ["one", "two", "three"]
    answer = live.client.completions.create(
        model="tiny", prompt=prompts, n=2, seed=1, max_tokens=4, echo=True
    )
    assert [c.index for c in answer.choices] == list(range(6))
    assert [c.text for c in answer.choices] == [f"{p}1/{j} " for p in prompts for j in range(2)]
    assert answer.usage.prompt_tokens == sum(map(len, prompts))
    assert answer.usage.completion_tokens == 24


@pytest.mark.parametrize("prompt", [[98, 99], [[98, 99], [100]]])
def test_prompts_as_token_ids(live, prompt):
    answer = live.client.completions.create(
        model="tiny", prompt=prompt, max_tokens=1, echo=True, extra_body={"return_token_ids": True}
    )
    lists = prompt if isinstance(prompt[0], list) else [prompt]
    assert [c.text for c in answer.choices] == [
        "".join(chr(i - 1) for i in ids) + "H" for ids in lists
    ]
    assert [c.prompt_token_ids for c in answer.choices] == lists
    assert [c.token_ids for c in answer.choices] == [[1 + ord("H")]] * len(lists)


def test_completion_logprobs(live):
    answer = live.client.completions.create(
        model="tiny", prompt="ab", max_tokens=2, logprobs=2, echo=True
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs.tokens == ["a", "b", "H", "e"]
    assert logprobs.text_offset == [0, 1, 2, 3]
    assert logprobs.token_logprobs == [None, -0.5, -0.5, -0.5]
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[1] == {"b": -0.5, "c": -1.0}


def test_scoring_a_prompt_makes_no_token(live):
    answer = live.client.completions.create(
        model="tiny", prompt="abc", max_tokens=0, logprobs=0, echo=True
    )
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == ("abc", "length")
    assert choice.logprobs.token_logprobs == [None, -0.5, -0.5]
    assert choice.logprobs.top_logprobs[1] == {"b": -0.5}
    assert answer.usage.completion_tokens == 0


def test_chat_logprobs_carry_bytes(launch):
    live = launch(FakeEngine(Script(text="é")))
    answer = live.client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], logprobs=True, top_logprobs=2
    )
    content = answer.choices[0].logprobs.content
    assert [c.bytes for c in content] == [[0xC3], [0xA9], []]
    assert content[0].token == "bytes:\\xc3"
    assert [len(c.top_logprobs) for c in content] == [2, 2, 2]
    assert content[0].top_logprobs[0].logprob == -0.5


def test_cached_tokens_are_told(launch):
    live = launch(FakeEngine(Script(cached=16)))
    answer = live.client.completions.create(model="tiny", prompt=["x" * 20, "y" * 20], n=2)
    assert answer.usage.prompt_tokens_details.cached_tokens == 32


def test_models(live):
    listed = list(live.client.models.list())
    assert [m.id for m in listed] == ["tiny", "org/tiny-alias"]
    card = live.client.models.retrieve("org/tiny-alias")
    assert (card.object, card.max_model_len) == ("model", 4096)
    with pytest.raises(openai.NotFoundError, match="`tiny`"):
        live.client.models.retrieve("gpt-4")


def test_a_wrong_field_is_a_bad_request(live):
    with pytest.raises(openai.BadRequestError) as caught:
        live.client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    assert "at least 0" in caught.value.message


def test_another_model_is_not_found(live):
    with pytest.raises(openai.NotFoundError) as caught:
        live.client.completions.create(model="gpt-4", prompt="x")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_too_long_a_prompt_is_a_bad_request(live):
    with pytest.raises(openai.BadRequestError, match="4096") as caught:
        live.client.completions.create(model="tiny", prompt="x" * 5000)
    assert caught.value.code == "context_length_exceeded"


def test_key(launch):
    live = launch(api_keys=("other", "sesame"))
    live.client.models.list()
    for key in ("wrong", "sesam"):
        other = live.client.with_options(api_key=key)
        with pytest.raises(openai.AuthenticationError):
            other.completions.create(model="tiny", prompt="x")
    for header in (b"Bearer", b"Basic sesame", b"Bearer s\xc3\xa9same", b"sesame"):
        assert live.http.get("/v1/models", headers={"authorization": header}).status_code == 401
    assert live.http.get("/v1/models").status_code == 401
    assert live.http.post("/tokenize", json={"prompt": "x"}).status_code == 401
    assert live.http.get("/health").status_code == 200


def test_a_full_queue_says_when_to_come_back(launch):
    engine = FakeEngine(max_num_queued_reqs=2)
    live = launch(engine)
    engine.num_waiting = 2
    with pytest.raises(openai.RateLimitError) as caught:
        live.client.completions.create(model="tiny", prompt="x")
    assert int(caught.value.response.headers["retry-after"]) > 0
    assert engine.open == {}


def test_a_request_that_fails_is_told_and_harms_no_other(launch):
    engine = FakeEngine(Script(fail_at=3))
    live = launch(engine)
    with pytest.raises(openai.InternalServerError, match="not numbers"):
        live.client.completions.create(model="tiny", prompt=["x", "y"])
    stream = live.client.completions.create(model="tiny", prompt="x", stream=True)
    with pytest.raises(openai.APIError, match="not numbers"):
        list(stream)
    engine.script = Script()
    assert live.client.completions.create(model="tiny", prompt="x").choices[0].text


def test_a_key_may_hold_any_character(launch):
    live = launch()
    object.__setattr__(live.context, "api_keys", ("sésame",))
    headers = {"authorization": "Bearer sésame".encode()}
    assert live.http.get("/v1/models", headers=headers).status_code == 200


def test_a_long_text_is_tokenised_too(launch):
    live = launch(FakeEngine(max_model_len=50_000))
    answer = live.client.completions.create(model="tiny", prompt="x" * 40_000, max_tokens=1)
    assert answer.usage.prompt_tokens == 40_000


def test_beam_search_takes_nothing_of_the_models_sampling(launch):
    live = launch(default_sampling=SamplingParams(temperature=0.2, top_p=0.9, top_k=5))
    extra = {"use_beam_search": True, "length_penalty": 0.5, "early_stopping": "never"}
    for best_of, width in ((None, 2), (4, 4)):
        answer = live.client.completions.create(
            model="tiny", prompt="a", n=2, best_of=best_of, extra_body=extra
        )
        assert [c.index for c in answer.choices] == [0, 1]
        params = live.engine.requests[-1][1]
        assert (params.num_seqs, params.num_choices) == (width, 2)
        assert (params.temperature, params.top_p, params.top_k) == (1.0, 1.0, 0)
        assert (params.length_penalty, params.early_stopping) == (0.5, "never")
    live.client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        temperature=0,
        extra_body={"use_beam_search": True, "beam_width": 3},
    )
    assert live.engine.requests[-1][1].num_seqs == 3
    assert live.engine.requests[-1][1].temperature == 0


def test_best_of_keeps_the_models_sampling(launch):
    live = launch(default_sampling=SamplingParams(temperature=0.2, top_k=5))
    live.client.completions.create(model="tiny", prompt="a", n=1, best_of=3)
    params = live.engine.requests[-1][1]
    assert (params.n, params.num_choices, params.top_k) == (1, 3, 5)

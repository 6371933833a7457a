from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from octavo import LLM, SamplingParams
from octavo.config import EngineConfig, ModelConfig
from octavo.errors import ConfigError, EngineError, ModelNotFoundError, RequestError
from octavo.llm.build import default_sampling
from octavo.models.checkpoint import open_checkpoint

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
TEXTS = ["The octavo was folded", "Numbers such as 12", "When the pool is full, the coldest"]


@pytest.fixture(scope="module")
def llm(tiny_model):
    with LLM(tiny_model, num_kv_blocks=200, max_num_seqs=16) as llm:
        yield llm


def tokens(outputs):
    return [[c.token_ids for c in o.outputs] for o in outputs]


def test_forms_of_a_prompt(llm):
    ids = [llm.built.tokenizer.encode(t) for t in TEXTS]
    together = llm.generate(TEXTS, GREEDY)
    assert [o.prompt for o in together] == TEXTS
    assert [o.prompt_token_ids for o in together] == ids
    assert len({tuple(o.outputs[0].token_ids) for o in together}) == 3
    for i, text in enumerate(TEXTS):
        assert tokens(llm.generate(text, GREEDY)) == tokens(together[i : i + 1])
        assert tokens(llm.generate(ids[i], GREEDY)) == tokens(together[i : i + 1])
    mixed = llm.generate([ids[0], TEXTS[1], tuple(ids[2])], GREEDY)
    assert tokens(mixed) == tokens(together)
    assert [o.prompt for o in mixed] == [None, TEXTS[1], None]
    assert llm.generate([], GREEDY) == []


def test_an_output_is_whole(llm):
    params = SamplingParams(
        max_tokens=9, seed=3, n=3, logprobs=2, prompt_logprobs=1, ignore_eos=True
    )
    (output,) = llm.generate("The sheet gave sixteen pages", params)
    assert output.finished
    assert [c.index for c in output.outputs] == [0, 1, 2]
    assert len({tuple(c.token_ids) for c in output.outputs}) == 3
    for choice in output.outputs:
        assert (choice.finish_reason, choice.stop_reason, choice.error) == ("length", None, None)
        assert [e.token_id for e in choice.logprobs] == choice.token_ids
        assert all(len(e.top) == 2 and math.isfinite(e.logprob) for e in choice.logprobs)
        assert choice.text == llm.built.tokenizer.decode(choice.token_ids)
    assert output.prompt_logprobs[0] is None
    assert [e.token_id for e in output.prompt_logprobs[1:]] == output.prompt_token_ids[1:]
    assert output.metrics.num_generation_tokens == 27
    assert output.metrics.arrival <= output.metrics.first_token <= output.metrics.last_token
    assert llm.generate("The sheet", GREEDY)[0].outputs[0].logprobs is None


def test_the_same_seed_gives_the_same_tokens_in_any_company(llm):
    params = [SamplingParams(max_tokens=8, seed=s, top_p=0.9) for s in (1, 2, 3)]
    together = llm.generate(TEXTS, params)
    for i in (2, 0, 1):
        assert tokens(llm.generate(TEXTS[i], params[i])) == tokens(together[i : i + 1])
    assert tokens(llm.generate([TEXTS[0]] * 2, params[:2]))[0] == tokens(together)[0]


def test_the_second_time_the_prompt_is_cached(llm):
    prompt = list(range(100, 180))
    first, second = (llm.generate(prompt, GREEDY)[0] for _ in range(2))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 79)
    assert first.outputs == second.outputs
    assert llm.stats().prefix_cache_hits >= 64


def test_stop_string(llm):
    text = llm.generate(TEXTS[0], GREEDY)[0].outputs[0].text
    stop = text[5:8]
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True, stop=stop)
    (choice,) = llm.generate(TEXTS[0], params)[0].outputs
    assert choice.text == text[: text.index(stop)]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
    assert llm.stats().num_blocks_used == 0


def test_chat_and_its_stream_say_the_same(llm):
    messages = [{"role": "user", "content": "Who reads books?"}]
    (output,) = llm.chat(messages, GREEDY)
    assert output.prompt.startswith("<|im_start|>user\nWho reads books?")
    deltas = list(llm.stream_chat(messages, GREEDY))
    assert "".join(d.text for d in deltas) == output.outputs[0].text
    assert [t for d in deltas for t in d.token_ids] == output.outputs[0].token_ids
    assert [d.finish_reason for d in deltas if d.finish_reason] == ["length"]
    two = llm.chat([messages, [{"role": "user", "content": "And who writes?"}]], GREEDY)
    assert tokens(two)[0] == tokens([output])[0]


def test_a_closed_stream_frees_its_blocks_and_the_engine(llm):
    stream = llm.stream(TEXTS[0], SamplingParams(max_tokens=400, ignore_eos=True))
    next(stream)
    with pytest.raises(EngineError, match="generating already"):
        llm.generate(TEXTS[1], GREEDY)
    stream.close()
    assert llm.stats().num_blocks_used == 0
    assert llm.stats().num_requests_running == 0
    assert llm.generate(TEXTS[1], GREEDY)[0].finished
    llm.built.core.check()


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ("", GREEDY, "at least one token"),
        ([[]], GREEDY, "at least one token"),
        ([[1, -1]], GREEDY, r"prompt\[1\]: expected a token id from 0 to 511, got -1"),
        ([[512]], GREEDY, "from 0 to 511, got 512"),
        ([3.5], GREEDY, r"prompts\[0\]: expected text or a list of token ids, got float"),
        ([{"prompt": "x"}], GREEDY, "got dict"),
        ([1] * 600, GREEDY, "maximum context length is 512"),
        ("ok", SamplingParams(max_tokens=600), "maximum context length is 512"),
        (["a", "b"], [GREEDY], "one for all or one for each of 2 prompts, got 1"),
        ("a", SamplingParams(n=17), r"\(max_num_seqs\)"),
        ("a", SamplingParams(logit_bias={512: 1}), "logit_bias"),
    ],
)
def test_bad_requests_leave_nothing_behind(llm, prompts, params, message):
    with pytest.raises(RequestError, match=message):
        llm.generate(prompts, params)
    assert llm.stats().num_requests_waiting == 0
    assert tokens(llm.generate(TEXTS[0], GREEDY))


def test_one_bad_request_among_good_ones_stops_them_all_before_they_run(llm):
    before = llm.stats().prompt_tokens
    with pytest.raises(RequestError):
        llm.generate(["fine", [1] * 600], GREEDY)
    assert llm.stats().prompt_tokens == before


def test_the_models_own_defaults(tiny_model, tmp_path):
    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = tmp_path / "generation_config.json"
    given = json.loads(config.read_text()) | {"do_sample": True, "temperature": 0.25, "top_k": 7}
    config.write_text(json.dumps(given))
    with LLM(tmp_path, num_kv_blocks=40) as llm:
        p = llm.default_sampling
        assert (p.temperature, p.top_k, p.top_p) == (0.25, 7, 1.0)
        assert llm.built.limits.max_model_len == 512


def test_an_alias_brings_its_authors_sampling_and_files_go_over_it(tiny_model):
    def default(files: dict[str, float], model: str = "smollm2-135m-instruct") -> SamplingParams:
        checkpoint = replace(open_checkpoint(tiny_model), generation_config=files)
        return default_sampling(EngineConfig(model=ModelConfig(model=model)), checkpoint)

    assert default({}) == SamplingParams(temperature=0.2, top_p=0.9)
    assert default({"top_p": 0.5, "top_k": 3.0}) == SamplingParams(
        temperature=0.2, top_p=0.5, top_k=3
    )
    assert default({}, "qwen3-0.6b") == SamplingParams()
    assert default({}, str(tiny_model)) == SamplingParams()


def test_a_conversation_without_messages_is_refused(llm):
    for nothing in ([], [[]]):
        with pytest.raises(RequestError, match=r"^messages: expected at least one message"):
            llm.chat(nothing, GREEDY)


def test_an_output_prints_without_its_times(llm):
    (output,) = llm.generate(TEXTS[0], GREEDY)
    assert output.metrics is not None
    assert "RequestTimes" not in repr(output)


def test_a_template_from_a_file(tiny_model, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}{{ eos_token }}")
    with LLM(tiny_model, num_kv_blocks=40, chat_template=path) as llm:
        assert llm.render([{"role": "user", "content": "hi"}]) == "[hi]<|im_end|>"
    with pytest.raises(ConfigError, match=r"^chat_template: expected a text file"):
        LLM(tiny_model, num_kv_blocks=40, chat_template=str(tmp_path / "none"))


def test_settings_that_the_model_or_the_pool_cannot_hold(tiny_model):
    with pytest.raises(ConfigError, match=r"^max_model_len: expected at most 512"):
        LLM(tiny_model, max_model_len=513)
    with pytest.raises(ConfigError, match="raise num_kv_blocks to at least 32"):
        LLM(tiny_model, max_model_len=512, num_kv_blocks=31)
    with pytest.raises(ModelNotFoundError):
        LLM(tiny_model / "missing")


def test_closed_is_closed(tiny_model):
    llm = LLM(tiny_model, num_kv_blocks=40)
    llm.close()
    llm.close()
    with pytest.raises(EngineError, match="closed"):
        llm.generate("x")

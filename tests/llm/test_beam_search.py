"""Beam search on a real model: as transformers searches, and the same under memory pressure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golden_models import (
    BEAM_ENDS,
    BEAM_PROMPTS,
    BEAM_RULES,
    BEAM_TOKENS,
    BEAM_WIDTHS,
    make_golden_model,
)
from octavo import LLM, BeamSearchParams, SamplingParams
from octavo.errors import RequestError

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "beams.npz"
Outputs = list[tuple[list[int], float]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_golden_model(tmp_path_factory.mktemp("models"), "llama")


@pytest.fixture(scope="module")
def goldens() -> tuple[list[list[int]], dict[tuple, list[Outputs]]]:
    """Prompts; width and rule -> for each prompt the outputs with their scores."""
    with np.load(GOLDENS) as file:
        ends = np.cumsum(file["prompt_lengths"], dtype=int)[:-1]
        prompts = [part.tolist() for part in np.split(file["prompts"], ends)]
        ends = np.cumsum(file["lengths"], dtype=int)[:-1]
        rows = iter(zip(np.split(file["tokens"], ends), file["scores"].tolist(), strict=True))
    cases: dict[tuple, list[Outputs]] = {
        (width, *rule): [] for rule in BEAM_RULES for width in BEAM_WIDTHS
    }
    for _ in prompts:
        for (width, *_), found in cases.items():
            found.append([(tokens.tolist(), score) for tokens, score in _take(rows, width)])
    assert next(rows, None) is None
    return prompts, cases


def _take(rows, num):
    return [next(rows) for _ in range(num)]


def params(width: int, length_penalty: float, early_stopping: bool | str) -> BeamSearchParams:
    return BeamSearchParams(
        beam_width=width,
        max_tokens=BEAM_TOKENS,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        stop_token_ids=BEAM_ENDS,
    )


def search_all(llm: LLM, prompts, cases):
    """All cases in one go, so that searches of all widths run together."""
    each = [(p, params(*case)) for case in cases for p in prompts]
    outputs = llm.generate([p for p, _ in each], [s.to_sampling_params() for _, s in each])
    return [o.outputs for o in outputs]


@pytest.fixture(scope="module")
def calm(model, goldens):
    prompts, cases = goldens
    with LLM(
        model,
        dtype="float32",
        kv_cache_dtype="float32",
        num_kv_blocks=2000,
        max_model_len=64,
        enable_prefix_caching=False,
    ) as llm:
        outputs = search_all(llm, prompts, cases)
        assert llm.stats().num_preemptions == 0
    return outputs


def test_tokens_and_scores_are_those_of_transformers(calm, goldens):
    prompts, cases = goldens
    assert len(prompts) == sum(num for _, num in BEAM_PROMPTS) == 50
    found, reasons, lengths = iter(calm), set(), set()
    for (_, length_penalty, _), expected in cases.items():
        for outputs in expected:
            choices = next(found)
            assert [c.token_ids for c in choices] == [tokens for tokens, _ in outputs]
            for choice, (tokens, score) in zip(choices, outputs, strict=True):
                got = choice.cumulative_logprob / len(tokens) ** length_penalty
                assert got == pytest.approx(score, abs=2e-5, rel=2e-5)
                reasons.add(choice.finish_reason)
                lengths.add(len(tokens))
    assert reasons == {"stop", "length"}
    assert len(lengths) > 10


@pytest.mark.parametrize(
    "settings",
    [
        {"num_kv_blocks": 24, "preemption_mode": "blocks"},
        {"num_kv_blocks": 24, "preemption_mode": "sequence", "host_kv_bytes": 2**20},
        {"num_kv_blocks": 24, "preemption_mode": "recompute", "max_num_batched_tokens": 20},
        {"num_kv_blocks": 8, "enable_prefix_caching": False, "max_num_seqs": 7},
    ],
    ids=str,
)
def test_memory_pressure_and_preemption_change_nothing(settings, model, calm, goldens):
    prompts, cases = goldens
    some = list(cases)[::5] if settings["num_kv_blocks"] == 8 else list(cases)[::3]
    numbers = [i * len(prompts) + j for i, c in enumerate(cases) if c in some for j in range(20)]
    with LLM(model, dtype="float32", kv_cache_dtype="float32", max_model_len=64, **settings) as llm:
        outputs = search_all(llm, prompts[:20], some)
        stats = llm.stats()
        llm.built.core.check()
    assert outputs == [calm[i] for i in numbers]  # log-probabilities too, bit for bit
    assert stats.num_preemptions > 30
    assert stats.num_blocks_used == 0


def test_the_offline_calls(tiny_model):
    with LLM(tiny_model, num_kv_blocks=100, max_num_seqs=8) as llm:
        how = BeamSearchParams(beam_width=3, max_tokens=8, ignore_eos=True, length_penalty=0.5)
        outputs = llm.beam_search(["The octavo was", "A block"], how)
        same = llm.generate(["The octavo was", "A block"], how.to_sampling_params())
        for output, other in zip(outputs, same, strict=True):
            assert len(output.sequences) == 3
            scores = [s.score for s in output.sequences]
            assert scores == sorted(scores, reverse=True)
            for sequence, choice in zip(output.sequences, other.outputs, strict=True):
                assert sequence.tokens == other.prompt_token_ids + choice.token_ids
                assert sequence.text == llm.built.tokenizer.decode(sequence.tokens)
                assert sequence.logprobs == choice.logprobs
                assert sequence.cum_logprob == sum(e.logprob for e in sequence.logprobs)
                assert sequence.score == sequence.cum_logprob / 8**0.5
                assert sequence.finish_reason == "length"
        with pytest.raises(RequestError, match="beam_width: expected at most 8"):
            llm.beam_search("a", replace(how, beam_width=9))
        with pytest.raises(RequestError, match="temperature"):
            llm.beam_search("a", replace(how, temperature=0.5))
        many = SamplingParams(n=2, best_of=6, max_tokens=8, logprobs=0, ignore_eos=True, seed=3)
        best = llm.generate("A block", many)[0].outputs
        every = llm.generate("A block", replace(many, n=6, best_of=None))[0].outputs
        every.sort(key=lambda choice: -choice.cumulative_logprob)
        assert [c.token_ids for c in best] == [c.token_ids for c in every[:2]]
        with pytest.raises(RequestError, match="best_of"):
            list(llm.stream("a", many))
        (delta, *rest) = llm.stream("A block", replace(how.to_sampling_params(), n=1))
        assert not rest
        assert list(delta.token_ids) == same[1].outputs[0].token_ids

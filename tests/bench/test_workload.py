from __future__ import annotations

import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.options import DatasetOptions
from octavo.bench.workload.arrivals import arrival_times
from octavo.bench.workload.load import as_text, load_samples
from octavo.bench.workload.sample import Sample
from octavo.errors import ConfigError
from tests.server.fake_engine import ByteTokenizer


class Tokens(ByteTokenizer):
    vocab_size = 257


def load(seed: int = 0, tokenizer: Tokens | None = None, **options: Any) -> list[Sample]:
    return load_samples(DatasetOptions(**options), seed, tokenizer)


def test_random() -> None:
    samples = load(
        num_prompts=50, random_input_len=100, random_output_len=10, random_range_ratio=0.5
    )
    assert len(samples) == 50
    lengths = {len(s.prompt) for s in samples}
    assert min(lengths) >= 50
    assert max(lengths) <= 150
    assert len(lengths) > 10
    assert all(5 <= s.output_len <= 15 for s in samples)
    assert all(100 <= t < 32000 for s in samples for t in s.prompt)  # type: ignore[misc]
    assert samples == load(
        num_prompts=50, random_input_len=100, random_output_len=10, random_range_ratio=0.5
    )
    assert samples != load(
        1, num_prompts=50, random_input_len=100, random_output_len=10, random_range_ratio=0.5
    )


def test_random_with_a_prefix_and_a_vocabulary() -> None:
    samples = load(
        num_prompts=5, random_input_len=4, random_prefix_len=8, vocab_size=260, min_token_id=200
    )
    assert {len(s.prompt) for s in samples} == {12}
    assert len({s.prompt[:8] for s in samples}) == 1
    assert len({s.prompt[8:] for s in samples}) == 5
    assert all(200 <= t < 260 for s in samples for t in s.prompt)  # type: ignore[misc]
    small = load(tokenizer=Tokens(), num_prompts=5, random_input_len=500)
    assert max(t for s in small for t in s.prompt) in range(250, 257)  # type: ignore[type-var]


def test_prefix_repetition() -> None:
    samples = load(
        dataset_name="prefix_repetition", num_prompts=30, prefix_repetition_prefix_len=16,
        prefix_repetition_suffix_len=4, prefix_repetition_num_prefixes=3, prefix_repetition_output_len=7,
    )  # fmt: skip
    prefixes = [s.prompt[:16] for s in samples]
    assert sorted(prefixes.count(p) for p in set(prefixes)) == [10, 10, 10]
    assert prefixes[:10] != [prefixes[0]] * 10  # mixed
    assert len({s.prompt for s in samples}) == 30
    assert {(len(s.prompt), s.output_len) for s in samples} == {(20, 7)}


def test_sharegpt_like_has_the_papers_means() -> None:
    samples = load(dataset_name="sharegpt-like", num_prompts=4000, max_sample_len=1 << 30)
    assert statistics.fmean(len(s.prompt) for s in samples) == pytest.approx(161.31, rel=0.08)
    assert statistics.fmean(s.output_len for s in samples) == pytest.approx(337.99, rel=0.08)
    cut = load(dataset_name="sharegpt-like", num_prompts=200, max_sample_len=300)
    assert all(len(s.prompt) + s.output_len <= 300 for s in cut)


def test_sharegpt(tmp_path: Path) -> None:
    def turns(*values: str) -> dict[str, Any]:
        return {"conversations": [{"from": "human", "value": v} for v in values]}

    entries = [
        turns("question one", "an answer"), turns("only one"), turns("hi", "too short a prompt"),
        turns("question two", "no"), turns("q" * 90, "a" * 20), {"odd": 1}, turns("another", "good answer", "x"),
    ]  # fmt: skip
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(entries))
    options = {"dataset_name": "sharegpt", "dataset_path": str(path), "max_sample_len": 100}
    samples = load(tokenizer=Tokens(), **options)
    assert {(s.prompt, s.output_len) for s in samples} == {("question one", 9), ("another", 11)}
    assert len(load(tokenizer=Tokens(), num_prompts=1, **options)) == 1
    fixed = load(sharegpt_output_len=8, **options)  # no tokenizer: prompts cannot be counted
    assert {s.output_len for s in fixed} == {8}
    with pytest.raises(ConfigError, match="--tokenizer: sharegpt needs one"):
        load(**options)


def test_custom(tmp_path: Path) -> None:
    path = tmp_path / "requests.json"
    path.write_text(
        json.dumps({"requests": [{"prompt": [5, 6], "max_tokens": 3}, {"prompt": "hi"}]})
    )
    options = {"dataset_name": "custom", "dataset_path": str(path)}
    assert load(**options) == [Sample((5, 6), 3), Sample("hi", 128)]
    path.write_text('{"prompt": "a", "output_tokens": 2}\n\n{"prompt": "b", "max_tokens": 4}\n')
    assert load(**options) == [Sample("a", 2), Sample("b", 4)]
    assert load(salt=7, **options)[0] == Sample("7 a", 2)


def test_the_shared_requests(shared_dir: Path) -> None:
    path = shared_dir / "bench" / "mixed64.json"
    samples = load(dataset_name="custom", dataset_path=str(path))
    assert len(samples) == 64
    salted = load(dataset_name="custom", dataset_path=str(path), salt=5, min_token_id=100)
    assert {s.prompt[0] for s in salted} == {105}
    assert [s.prompt[1:] for s in salted] == [s.prompt[1:] for s in samples]


def test_a_mooncake_trace(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 5000, "input_length": 1000, "output_length": 50, "hash_ids": [1, 2]},
        {"timestamp": 6500, "input_length": 1100, "output_length": 0, "hash_ids": [1, 3, 4]},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    options = {"dataset_name": "trace", "dataset_path": str(path)}
    first, second = load(**options, trace_speed=2.0)
    assert (len(first.prompt), first.output_len, first.arrival) == (1000, 50, 0.0)
    assert (len(second.prompt), second.output_len, second.arrival) == (1100, 1, 0.75)
    assert first.prompt[:512] == second.prompt[:512]  # equal ids, equal tokens
    assert first.prompt[512:700] != second.prompt[512:700]
    small = load(**options, trace_scale=16 / 512)
    assert [len(s.prompt) for s in small] == [31, 34]
    assert small[0].prompt[:16] == small[1].prompt[:16]
    assert load(7, **options)[0].prompt == first.prompt  # a function of the ids alone


def test_an_azure_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    first, second = load(dataset_name="trace", dataset_path=str(path))
    assert (len(first.prompt), first.output_len, first.arrival) == (374, 44, 0.0)
    assert (len(second.prompt), second.output_len) == (396, 109)
    assert second.arrival == pytest.approx(4.314579, abs=1e-5)


def test_the_recorded_traces_can_be_read(shared_dir: Path) -> None:
    for name in ("mooncake_conversation_trace.jsonl", "azure_llm_2023_conv.csv"):
        path = shared_dir / "traces" / name
        assert len(load(dataset_name="trace", dataset_path=str(path), num_prompts=20)) == 20


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("trace", "t.jsonl", '{"timestamp": 1}', "hash_ids|input_length.* in line 1"),
        ("trace", "t.jsonl", "x", "in line 1"),
        ("trace", "t.csv", "a,b\n1,2\n", "TIMESTAMP.* in row 1"),
        ("custom", "c.json", '[{"prompt": [1.5]}]', "a prompt .* in request 0"),
        ("custom", "c.json", '[{"prompt": "x", "max_tokens": 0}]', "max_tokens of at least 1"),
        ("custom", "c.json", "[3]", "an object as request 0"),
        ("custom", "c.json", "{x", "JSON or JSON lines"),
        ("custom", "c.json", "[]", "no request in .* can be used"),
        ("sharegpt", "s.json", "{}", "a list of conversations"),
    ],
)
def test_files_that_are_something_else(
    tmp_path: Path, name: str, file: str, text: str, message: str
) -> None:
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(tokenizer=Tokens(), dataset_name=name, dataset_path=str(path))


def test_missing_files() -> None:
    with pytest.raises(ConfigError, match="--dataset-path: trace needs a file"):
        load(dataset_name="trace")
    with pytest.raises(ConfigError, match="cannot read /no/such"):
        load(dataset_name="custom", dataset_path="/no/such")


def test_text() -> None:
    (sample,) = as_text([Sample((1 + ord("h"), 1 + ord("i")), 3, 0.5)], Tokens())
    assert sample == Sample("hi", 3, 0.5)


def test_salts_and_vocabularies_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="--vocab-size"):
        load(vocab_size=100)
    with pytest.raises(
        ConfigError, match="--min-token-id: expected less than the vocabulary of 257"
    ):
        load(tokenizer=Tokens(), min_token_id=300)


def test_arrivals() -> None:
    samples = [Sample((1,), 1, 0.5 * i) for i in range(2000)]
    assert arrival_times(samples, math.inf, 1.0, 0) == [0.0] * 2000
    assert arrival_times(samples[:3], None, 1.0, 0) == [0.0, 0.5, 1.0]
    assert arrival_times([Sample((1,), 1)], None, 1.0, 0) == [0.0]
    poisson = arrival_times(samples, 4.0, 1.0, 0)
    assert poisson == sorted(poisson) == arrival_times(samples, 4.0, 1.0, 0)
    assert poisson != arrival_times(samples, 4.0, 1.0, 1)

    def gaps(times: list[float]) -> list[float]:
        return [b - a for a, b in itertools.pairwise(times)]

    # A gamma distribution of the shape k has the mean 1/4 and a deviation of 1/sqrt(k) of it.
    for shape in (0.5, 1.0, 4.0):
        found = gaps(arrival_times(samples, 4.0, shape, 0))
        assert statistics.fmean(found) == pytest.approx(0.25, rel=0.1)
        assert statistics.pstdev(found) == pytest.approx(0.25 / math.sqrt(shape), rel=0.15)

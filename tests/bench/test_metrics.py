"""Figures computed by hand."""

from __future__ import annotations

import pytest

from octavo.bench.serve.goodput import num_good, parse_goodput
from octavo.bench.serve.metrics import details, figures, max_in_flight, peak_tokens_per_second
from octavo.bench.serve.outcome import Outcome
from octavo.bench.serve.show import lines
from octavo.errors import ConfigError


def outcome(started: float, ttft: float, *itl: float, prompt: int = 10, **more: object) -> Outcome:
    return Outcome(
        prompt_len=prompt, output_len=1 + len(itl), started=started, ttft=ttft,
        latency=ttft + sum(itl), itl=list(itl), **more,  # type: ignore[arg-type]
    )  # fmt: skip


A = outcome(0.0, 0.2, 0.1, 0.1, 0.2, num_cached=4)  # 4 tokens, latency 0.6, tpot 0.4 / 3
B = outcome(0.5, 0.4, 0.3, prompt=20, num_cached=0)  # 2 tokens, latency 0.7, tpot 0.3
C = outcome(1.0, 0.3)  # 1 token, latency 0.3, no tpot
BAD = Outcome(started=0.1, error="HTTP 500: no")


def test_figures() -> None:
    f = figures([A, B, C, BAD], 2.0, (50, 90))
    assert (f["completed"], f["failed"], f["duration"]) == (3, 1, 2.0)
    assert (f["total_input_tokens"], f["total_output_tokens"]) == (40, 7)
    assert f["total_cached_tokens"] == 4
    assert f["request_throughput"] == 1.5
    assert f["output_throughput"] == 3.5
    assert f["total_token_throughput"] == 23.5
    assert f["mean_ttft_ms"] == pytest.approx(300)
    assert f["median_ttft_ms"] == pytest.approx(300)
    assert f["std_ttft_ms"] == pytest.approx((20000 / 3) ** 0.5)
    assert f["p90_ttft_ms"] == pytest.approx(380)  # place 1.8 of 200 300 400
    assert f["mean_tpot_ms"] == pytest.approx((400 / 3 + 300) / 2)
    assert f["mean_itl_ms"] == pytest.approx(175)  # 100 100 200 300
    assert f["median_itl_ms"] == pytest.approx(150)
    assert f["mean_e2el_ms"] == pytest.approx(1600 / 3)
    assert f["p50_e2el_ms"] == pytest.approx(600)


def test_nothing_but_failures() -> None:
    f = figures([BAD], 1.0, (99,))
    assert (f["completed"], f["failed"], f["mean_ttft_ms"], f["p99_itl_ms"]) == (0, 1, 0.0, 0.0)
    assert "total_cached_tokens" not in f


def test_in_flight_and_peak() -> None:
    # A 0.0-0.6, B 0.5-1.2, C 1.0-1.3: two at 0.5 and two from 1.0
    assert max_in_flight([A, B, C]) == 2
    # One that starts when another ends does not overlap it.
    assert max_in_flight([outcome(0.0, 1.0), outcome(1.0, 1.0)]) == 1
    # Chunks at .2 .3 .4 .6 (A), .9 1.2 (B), 1.3 (C)
    assert peak_tokens_per_second([A, B, C]) == 5.0
    assert peak_tokens_per_second([]) == 0.0


def test_goodput() -> None:
    limits = parse_goodput(("ttft:300 tpot:150", "e2el:1000"))
    assert limits == {"ttft": 0.3, "tpot": 0.15, "e2el": 1.0}
    assert num_good([A, B, C, BAD], limits) == 2  # B misses ttft and tpot
    assert num_good([A, B, C, BAD], {"e2el": 0.65}) == 2
    assert num_good([A, B, C, BAD], {}) == 3


@pytest.mark.parametrize(
    "text", ["ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:nan", "itl:5", "ttft:0"]
)
def test_wrong_goodput(text: str) -> None:
    with pytest.raises(ConfigError, match="--goodput: expected NAME:MILLISECONDS"):
        parse_goodput((text,))


def test_details() -> None:
    d = details([A, BAD])
    assert d["input_lens"] == [10, 0]
    assert d["itls"] == [[0.1, 0.1, 0.2], []]
    assert d["errors"] == ["", "HTTP 500: no"]


def test_the_block() -> None:
    result = figures([A, B, C, BAD], 2.0, (99,)) | {"max_concurrency": 16, "request_goodput": 1.0}
    block = list(lines(result, ("ttft", "e2el"), (99,)))
    assert block[0] == "============ Serving Benchmark Result ============"
    assert block[-1] == "=" * 50
    assert "Successful requests:                     3" in block
    assert "Maximum request concurrency:             16" in block
    assert "Request goodput (req/s):                 1.00" in block
    assert "---------------Time to First Token----------------" in block
    assert "Mean TTFT (ms):                          300.00" in block
    assert "P99 E2EL (ms):                           698.00" in block  # place 1.98 of 300 600 700
    assert not any("ITL" in line for line in block)

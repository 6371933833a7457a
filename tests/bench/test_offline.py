"""`octavo bench latency | throughput | step | startup` on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo import LLM
from octavo.bench.offline.probe import Watch, watching
from octavo.bench.offline.step import PIECES, pieces
from octavo.errors import EngineError
from tests.bench.conftest import Octavo

SMALL = ("--num-kv-blocks", 100, "--threads", 1)


def test_latency(octavo: Octavo, tiny_model: Path) -> None:
    args = ("--input-len", 9, "--output-len", 5, "--batch-size", 3, "--num-iters", 4)
    r = octavo.json("latency", tiny_model, *SMALL, *args, "--num-iters-warmup", 1)
    assert len(r["latencies"]) == 4
    assert r["avg_latency"] == pytest.approx(sum(r["latencies"]) / 4)
    assert min(r["latencies"]) <= r["percentiles"]["50"] <= r["percentiles"]["99"]
    assert r["output_throughput"] == pytest.approx(15 / r["avg_latency"])
    code, out, _ = octavo("latency", "--model", tiny_model, *SMALL, *args)
    assert code == 0
    assert "3 requests, 9 + 5 tokens" in out
    assert "50% percentile" in out


def test_throughput(octavo: Octavo, tiny_model: Path) -> None:
    args = ("--num-prompts", 6, "--random-input-len", 40, "--random-output-len", 7)
    r = octavo.json("throughput", tiny_model, *SMALL, *args)
    assert (r["num_requests"], r["total_input_tokens"], r["total_output_tokens"]) == (6, 240, 42)
    assert r["total_num_tokens"] == 282
    assert r["tokens_per_second"] == pytest.approx(282 / r["elapsed_time"])
    assert r["requests_per_second"] == pytest.approx(6 / r["elapsed_time"])
    assert r["total_cached_tokens"] == 0
    shared = ("--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 32)
    shared += ("--prefix-repetition-suffix-len", 4, "--prefix-repetition-num-prefixes", 1)
    shared += ("--prefix-repetition-output-len", 3, "--num-prompts", 4, "--max-num-seqs", 1)
    r = octavo.json("throughput", tiny_model, *SMALL, *shared)
    assert r["total_cached_tokens"] == 3 * 32
    code, out, _ = octavo("throughput", tiny_model, *SMALL, *args)
    assert (code, "new tokens" in out) == (0, True)


def test_step(octavo: Octavo, tiny_model: Path) -> None:
    args = ("--in-flight", "1,4", "--input-len", 20, "--output-len", 8, "--rounds", 3)
    r = octavo.json("step", tiny_model, *SMALL, *args, "--by-op")
    assert set(r["in_flight"]) == {"1", "4"}
    for run in r["in_flight"].values():
        # Eight tokens: one with the prompt, and the last plan, of up to four, has no next one.
        assert 3 <= run["num_steps"] <= 6
        assert list(run["pieces"]) == list(PIECES)
        assert all(t > 0 for t in run["pieces"].values())
        assert run["step"] == pytest.approx(sum(run["pieces"].values()))
        assert run["python_share"] == pytest.approx(1 - run["pieces"]["model"] / run["step"])
        assert {"linear", "rms_norm", "paged_attention"} <= set(run["ops"])
        assert 0 < sum(run["ops"].values()) < run["pieces"]["model"]
    code, out, _ = octavo("step", tiny_model, *SMALL, *args)
    assert code == 0
    assert "4 in flight, ms" in out
    assert "Operations" not in out


def test_pieces_by_hand() -> None:
    lap = {"step": 20.0, "schedule": 1.0, "update": 2.0, "execute": 15.0, "inputs": 3.0, "hidden": 8.0,
           "logits": 2.0, "text": 5.0, "op linear": 6.0}  # fmt: skip
    found = pieces([lap, {**lap, "hidden": 9.0, "execute": 16.0, "step": 21.0}, lap])
    assert found["pieces"] == {
        "schedule": 1.0, "inputs": 3.0, "model": 10.0, "sample": 2.0, "update": 2.0, "books": 2.0, "text": 5.0,
    }  # fmt: skip
    assert (found["step"], found["python_share"]) == (25.0, 0.6)
    assert found["ops"] == {"linear": 6.0}
    with pytest.raises(EngineError, match="no step had all sequences in flight"):
        pieces([])


def test_watching_leaves_nothing_behind(tiny_model: Path) -> None:
    with LLM(tiny_model, num_kv_blocks=60, threads=1) as llm:
        core = llm.built.core
        model, inputs, ops = core.runner._model, core.runner._inputs, core.runner._model.ops
        before = llm.generate([[5, 6, 7]], use_tqdm=False)[0].outputs[0].token_ids
        with watching(core, Watch(), by_op=True):
            assert core.runner._model is not model
            llm.generate([[5, 6, 7]], use_tqdm=False)
        assert core.runner._model is model
        assert core.runner._inputs is inputs
        assert model.ops is ops
        for owner, name in ((core, "step"), (core.scheduler, "schedule"), (core.runner, "execute")):
            assert name not in vars(owner)
        assert len(before) == len(llm.generate([[5, 6, 7]], use_tqdm=False)[0].outputs[0].token_ids)


def test_startup(octavo: Octavo, tiny_model: Path) -> None:
    args = ("--num-iters", 2, "--num-iters-warmup", 0)
    r = octavo.json("startup", *args, "--", tiny_model, "--num-kv-blocks", 60)
    assert len(r["startup_times"]) == 2
    assert r["median_startup_time"] == pytest.approx(sum(r["startup_times"]) / 2)
    assert r["warmup_times"] == []
    code, _, err = octavo("startup", "--", "/no/such/model")
    assert code == 1
    assert "octavo: octavo serve: the process ended with 1" in err
    assert "no model '/no/such/model'" in err
    code, _, err = octavo("startup", "--", tiny_model, "--port", 8000)
    assert (code, "--port: each start takes a free port" in err) == (2, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("latency", "--batch-size", 0), "--batch-size: expected at least 1, got 0"),
        (("step", "--in-flight", "1,x"), "--in-flight: expected numbers of at least 1"),
        (("step", "--output-len", 1), "--output-len: expected at least 2, got 1"),
        (("startup", "--num-iters", 0), "--num-iters: expected at least 1, got 0"),
        (("throughput", "--num-prompts", 0), "--num-prompts: expected at least 1, got 0"),
        (("latency", "one", "--model", "two"), "--model: MODEL is given twice"),
    ],
)
def test_wrong_flags(octavo: Octavo, tiny_model: Path, args: tuple[str, ...], message: str) -> None:
    model = (tiny_model,) if args[0] == "step" else ()
    code, out, err = octavo(*args, *model)
    assert (code, out) == (2, "")
    assert message in err

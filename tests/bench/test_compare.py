"""`octavo bench compare` on a tiny model: what is counted, what is written, what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.bench.compare.measure import ALLOCATORS, Run
from octavo.bench.compare.meter import Memory, Step, memory_of
from octavo.bench.compare.overhead import Overhead
from octavo.bench.compare.page import render
from octavo.bench.compare.result import Result
from octavo.bench.compare.roofline import Roofline, fit
from octavo.bench.compare.words import caution, limits, meaning
from octavo.bench.compare.workloads import Draw, Workload, load
from octavo.bench.workload.sample import Sample
from tests.bench.conftest import Octavo

FEW = ("--threads", 1, "--num-prompts", 10, "--full-length-requests", 2, "--turns", 2)


@pytest.fixture(scope="module")
def found(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the command with all that it makes: JSON, page, what it prints."""
    import contextlib
    import io
    import sys

    from octavo.cli import main

    folder = tmp_path_factory.mktemp("compare")
    args = [*FEW, "--json", folder / "a.json", "--html", folder / "a.html", tiny_model]
    out = io.StringIO()
    argv, sys.argv = sys.argv, ["octavo", "bench", "compare", *map(str, args)]
    try:
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as exit:
            main()
    finally:
        sys.argv = argv
    assert not exit.value.code
    result = json.loads((folder / "a.json").read_text())
    return {"json": result, "html": (folder / "a.html").read_text(), "out": out.getvalue()}


def test_every_allocator_on_every_workload(found: dict[str, Any]) -> None:
    r = found["json"]
    assert [(run["workload"], run["allocator"]) for run in r["runs"]] == [
        (w, a) for w in ("mixed", "shared-prefix") for a in ALLOCATORS
    ]
    assert (r["max_model_len"], r["num_kv_blocks"], r["full_length_requests"]) == (512, 64, 2)
    assert r["same_tokens"] is True
    for run in r["runs"]:
        parts = ("kv_tokens", "kv_reserved_for_later", "internal_fragmentation",
                 "external_fragmentation", "kv_free")  # fmt: skip
        assert sum(run[part] for part in parts) == pytest.approx(1)
        assert all(-1e-9 <= run[part] <= 1 for part in parts)
        assert run["kv_utilization"] == pytest.approx(run["kv_tokens"] / run["kv_reserved"])
        assert 1 <= run["mean_batch"] <= run["peak_batch"] <= 10
        assert run["output_tokens_per_s"] == pytest.approx(run["output_tokens"] / run["elapsed_s"])
        assert 0 < run["ttft_s"]["p50"] <= run["ttft_s"]["p99"] <= run["latency_s"]["p99"]


def test_paging_holds_more_and_wastes_less(found: dict[str, Any]) -> None:
    runs = {(r["workload"], r["allocator"]): r for r in found["json"]["runs"]}
    for workload in ("mixed", "shared-prefix"):
        most, pow2, oracle, alone, paged = (runs[workload, a] for a in ALLOCATORS)
        use = [r["kv_utilization"] for r in (most, pow2, oracle, alone)]
        assert use == sorted(use)
        assert most["peak_batch"] <= 2
        assert most["mean_batch"] <= oracle["mean_batch"] < paged["mean_batch"]
        assert paged["external_fragmentation"] == alone["external_fragmentation"] == 0
        assert paged["internal_fragmentation"] < 0.05 < most["internal_fragmentation"]
        assert oracle["num_preemptions"] == pow2["num_preemptions"] == 0
    shared = runs["shared-prefix", "paged"]
    assert shared["cached_tokens"] >= 9 * 256
    assert shared["computed_tokens"] < runs["shared-prefix", "paged-no-sharing"]["computed_tokens"]
    gains = found["json"]["gains"]
    assert [(g["workload"], g["against"]) for g in gains] == [
        (w, a) for w in ("mixed", "shared-prefix") for a in ("contiguous-max", "contiguous-oracle")
    ]


def test_where_paging_cannot_pay(found: dict[str, Any]) -> None:
    cases = found["json"]["overhead"]
    assert [c["case"] for c in cases] == ["one user", "equal lengths", "ample memory"]
    for case in cases:
        assert case["least"] <= case["greatest"]
        paged, other = case["paged_output_tokens_per_s"], case["contiguous_output_tokens_per_s"]
        assert case["ratio"] == pytest.approx(paged / other)


def test_what_is_printed(found: dict[str, Any]) -> None:
    out = found["out"]
    assert "64 KV blocks = 1,024 tokens = 2 requests of 512 tokens" in out
    assert out.count("contiguous-pow2") == 4
    assert "Where paging cannot pay" in out
    assert "On shared-prefix, paging runs" in out


def test_the_page_is_whole_and_fetches_nothing(found: dict[str, Any]) -> None:
    page = found["html"]
    assert not re.search(r"(?:src|href)=|url\(|@import|<script", page)
    assert page.count("<svg viewBox") - page.count('aria-hidden="true"') == 2 * 3 + (
        found["json"]["roofline"] is not None
    )
    assert "prefers-color-scheme: dark" in page
    assert "nan" not in page
    assert all(page.count(name) >= 4 for name in ALLOCATORS)


def test_a_file_and_some_allocators(octavo: Octavo, tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    requests = [{"prompt": [3 + i] * (9 * i + 1), "max_tokens": 5 + i} for i in range(6)]
    requests.append({"prompt": "some text", "max_tokens": 2})
    path.write_text(json.dumps({"requests": requests}))
    r = octavo.json(
        "compare", tiny_model, "--workload", path, "--allocators", "paged,contiguous-max",
        "--no-overhead", "--threads", 1, "--repeats", 3, "--block-size", 32,
    )  # fmt: skip
    assert [run["allocator"] for run in r["runs"]] == ["paged", "contiguous-max"]
    assert r["workloads"][0]["name"] == "mine"
    assert r["workloads"][0]["output_tokens"] == sum(range(5, 11)) + 2
    assert r["max_model_len"] == 64  # the longest has 46 + 10
    assert r["num_kv_blocks"] == 6 * 2
    assert r["overhead"] == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--workload", "nothing"), "--workload: expected mixed, shared-prefix or a file"),
        (("--allocators", "best"), "--allocators: expected all, or some of contiguous-max"),
        (("--max-model-len", 40, "--workload", "FILE"), "a request of w has 51 tokens, expected"),
        (("--workload", "EMPTY"), "--workload: no request in"),
        (("--workload", "BAD"), "--workload: expected max_tokens of at least 1 in request 0"),
        (("--html", "/no/such/folder/a.html"), "--html: expected a file in a folder that exists"),
        (("--kv-allocator", "paged"), "No such option"),
    ],
)
def test_what_is_refused(
    octavo: Octavo, tiny_model: Path, tmp_path: Path, args: tuple[object, ...], message: str
) -> None:
    texts = {
        "FILE": '{"requests": [{"prompt": [5, 6], "max_tokens": 49}]}',
        "EMPTY": '{"requests": []}',
        "BAD": '{"requests": [{"prompt": [5], "max_tokens": 0}]}',
    }
    path = tmp_path / "w.json"
    for name, text in texts.items():
        if name in args:
            path.write_text(text)
    code, _, err = octavo("compare", tiny_model, *(path if a in texts else a for a in args))
    assert code == 2
    assert message in err


def test_memory_by_hand(tiny_model: Path) -> None:
    """A request of 20 + 13 = 33 tokens in blocks of 16; the last token is never computed."""
    expected = {
        "contiguous-max": Memory(total=1024, tokens=20, later=13, never=512 - 33, external=0),
        "contiguous-pow2": Memory(total=1024, tokens=20, later=13, never=64 - 33, external=0),
        "contiguous-oracle": Memory(total=1024, tokens=20, later=13, never=48 - 33, external=0),
        "paged": Memory(total=1024, tokens=20, later=12, never=0, external=0),
    }
    for name, memory in expected.items():
        with LLM(tiny_model, num_kv_blocks=64, threads=1, **ALLOCATORS[name]) as llm:
            seen: list[Memory] = []
            core = llm.built.core
            core.on_step = lambda plan, s, core=core, seen=seen: seen.append(
                memory_of(core.scheduler)
            )
            llm.generate([[7] * 20], SamplingParams(max_tokens=13, ignore_eos=True))
        assert seen[0] == memory, name
        assert seen[-1].reserved == 0


def test_holes_too_small_are_external(tiny_model: Path) -> None:
    """70 blocks hold two runs of 32; the third request waits, and six blocks are of no use."""
    with LLM(tiny_model, num_kv_blocks=70, threads=1, kv_allocator="contiguous-max") as llm:
        seen: list[Memory] = []
        core = llm.built.core
        core.on_step = lambda plan, seconds: seen.append(memory_of(core.scheduler))
        llm.generate([[7] * 20] * 3, SamplingParams(max_tokens=3, ignore_eos=True))
    assert seen[0].external == 6 * 16
    assert seen[-2].external == 0


def run_of(allocator: str, batches: list[int], line: Roofline) -> Run:
    memory = Memory(100, 50, 10, 10, 0)
    steps = tuple(Step(line.fixed + line.each * n, n, n, memory) for n in batches)
    seconds = sum(step.seconds for step in steps)
    return Run(allocator, "w", seconds, sum(batches), 0, 0, 0, (1.0,), (2.0,), steps, ((1,),))


def result_of(line: Roofline, batch: int, than: int) -> Result:
    samples = tuple(Sample((1,) * 10, 100) for _ in range(24))
    paged = run_of("paged", [batch] * (2400 // batch), line)
    other = run_of("contiguous-max", [than] * (2400 // than), line)
    return Result("m", 512, 192, 16, 1 << 20, (Workload("w", samples),), (other, paged), (),
                  {"cpu": "c", "cores": 2, "load_average": 0.5})  # fmt: skip


def test_the_roofline_is_found_again() -> None:
    line = Roofline(0.010, 0.002, 0.001)
    found = fit([run_of("a", [2, 2, 2, 8, 8], line), run_of("b", [5], line)])
    assert found is not None
    assert (found.fixed, found.each) == (pytest.approx(0.010), pytest.approx(0.002))
    assert found.knee == pytest.approx(5)
    assert line.gain(0, 100, batch=10, than=5) == pytest.approx(4 / 3)
    assert line.gain(0, 100, batch=1e9, than=5) == pytest.approx(2)
    assert fit([run_of("a", [4, 4, 4], line)]) is None


def test_where_a_claim_would_be_met() -> None:
    """Batches of 6 and 24, a knee of 5: 1.52x now; with two requests' memory 2.09x."""
    result = result_of(Roofline(0.010, 0.002, 0.0), 24, 6)
    gain = result.gains[0]
    assert not gain.is_met
    assert gain.ratio == pytest.approx((10 / 6 + 2) / (10 / 24 + 2))
    # No step computed prompts: their tokens count as much as a sequence in a step, 0.48 s in all.
    assert gain.at_most == pytest.approx((0.48 + 8.8) / (0.48 + 4.8))
    assert (gain.met_with_requests, gain.met_with_max_model_len) == (2, 1024)
    texts = list(limits(result))
    assert "could bring 1.76x here" in texts[1]
    assert "2x is met with a KV memory of 2 requests of full length (now 6)" in texts[1]
    assert "1.5x the tokens per second" in meaning(result)[0]
    assert "1.76x here" in render(result)


def test_a_machine_with_a_late_knee_needs_no_excuse() -> None:
    result = result_of(Roofline(0.100, 0.001, 0.0), 24, 6)
    assert result.gains[0].is_met
    assert len(list(limits(result))) == 1


def test_a_busy_machine_is_named() -> None:
    result = result_of(Roofline(0.1, 0.001, 0.0), 24, 6)
    assert caution(result) == ""
    result.machine["load_average"] = 7.5
    assert "load 7.5 on 2 cores" in caution(result)
    assert "load 7.5 on 2 cores" in render(result)


def test_the_cost_is_said_with_its_spread() -> None:
    result = result_of(Roofline(0.1, 0.001, 0.0), 24, 6)
    cases = [Overhead("a", "", 99.5, 100, 0.996, 0.9, 1.1), Overhead("b", "", 1, 1, 1.0, 1, 1)]
    said = meaning(dataclasses.replace(result, overheads=tuple(cases)))
    assert said[-1].endswith("paging costs nothing that shows (a; single turns 0.90 to 1.10).")
    cases.append(Overhead("c", "", 98, 100, 0.98, 0.97, 0.99))
    said = meaning(dataclasses.replace(result, overheads=tuple(cases)))
    assert said[-1].endswith("paging costs 2.0 % at most (c; single turns 0.97 to 0.99).")


def test_workloads_fit_the_context() -> None:
    def no_tokenizer() -> Any:
        raise AssertionError

    for name in ("mixed", "shared-prefix"):
        for limit in (256, 512, 1024, 8192):
            workload = load(name, 200, Draw(f"{name} 0", 500, limit), no_tokenizer)
            assert workload.longest <= limit
            assert workload == load(name, 200, Draw(f"{name} 0", 500, limit), no_tokenizer)
            assert all(3 <= t < 500 for s in workload.samples for t in s.prompt)

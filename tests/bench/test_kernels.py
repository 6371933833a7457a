"""`octavo bench kernels`: what is counted, and that everything runs."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("octavo._native", reason="the native kernels were not built")

from octavo.bench.kernels.attention import attention_bytes, attention_ops
from octavo.bench.kernels.native import _native
from octavo.bench.kernels.peaks import Peaks
from octavo.bench.kernels.result import Result
from octavo.bench.kernels.shapes import SHAPES, ModelShape
from octavo.bench.kernels.timing import Rotation, in_turns, repeat_count, seconds_of
from octavo.bench.kernels.weights import TYPES, random_weight
from octavo.ops.cpu import CpuOps
from octavo.ops.formats import dequantize
from octavo.ops.reference import ReferenceOps
from tests.bench.conftest import Octavo

FAST = ("--min-seconds", 0, "--rounds", 1, "--threads", 2)
LITTLE = ModelShape("little", 2, 64, 96, 4, 2, 16, 100)


def isas() -> list[str]:
    names = ["portable", "avx2", "avx512", "avx512bf16"]
    return names[: names.index(_native.best_isa()) + 1]


@pytest.mark.parametrize("isa", isas())
def test_peaks_do_the_work_they_say(isa: str) -> None:
    context = _native.Context(2, isa)
    data = np.arange(5 << 20, dtype=np.int64).view(np.uint8)
    assert _native.peak_read(context, data) == 40 << 20
    assert _native.peak_read(context, data[: (1 << 20) - 1]) == 0  # whole pieces only
    one, ten = (_native.peak_fma(context, n) for n in (1, 10))
    assert ten == 10 * one > 0
    one, ten = (_native.peak_dot(context, n) for n in (1, 10))
    assert ten == 10 * one > 0
    assert _native.peak_dot_name(context)


def test_ten_times_the_rounds_take_longer() -> None:
    # A loop that the compiler removed would not. Not a bar on speed: a factor of 100 in work, 3 in time.
    context = _native.Context(1, "")
    for peak in (_native.peak_fma, _native.peak_dot):
        times = []
        for rounds in (100_000, 10_000_000):
            begin = time.process_time()
            peak(context, rounds)
            times.append(time.process_time() - begin)
        assert times[1] > 3 * times[0]


@pytest.mark.parametrize("type", TYPES)
def test_random_weights_are_real_ones(type: str) -> None:
    weight = random_weight("w", type, 300, 512)
    values = dequantize(weight)
    assert values.shape == (300, 512)
    assert np.isfinite(values).all()
    assert values.std() > 0
    assert np.array_equal(values[:44], values[256:])  # rows are the same again
    x = np.random.default_rng(0).standard_normal((2, 512), np.float32)
    native, reference = CpuOps(1), ReferenceOps(1)
    got = native.linear(x, native.prepare_linear([weight]))
    expected = reference.linear(x, reference.prepare_linear([weight]))
    assert np.allclose(got, expected, rtol=0.05, atol=0.05 * np.abs(expected).max())


def test_counts_by_hand() -> None:
    # One query over 5 tokens: 4 heads x 16 dimensions, scores and values, a multiply and an add each.
    assert attention_ops(LITTLE, 5, 3, 1) == 3 * 5 * (4 * 16) * 4
    # Queries at positions 3, 4 of 5 tokens see 4 and 5.
    assert attention_ops(LITTLE, 5, 1, 2) == 9 * (4 * 16) * 4
    # Keys and values: 2 heads x 16 float16; query and result: 4 heads x 16 float32.
    assert attention_bytes(LITTLE, 5, 3, 1) == 3 * (2 * 5 * 2 * 16 * 2 + 2 * 4 * 16 * 4)
    assert SHAPES["llama-3.1-8b"].linears()["qkv"] == (6144, 4096)
    assert SHAPES["smollm2-135m"].linears()["gate_up"] == (3072, 576)
    peaks = Peaks("avx2", 2, 20e9, 100e9, 600e9, "x")
    result = Result("linear", "m", "w", 1, 0.5, 10**9, 30 * 10**9, True).figures(peaks)
    assert (result["gb_per_s"], result["read_pct"]) == (2.0, 10.0)
    assert (result["gop_per_s"], result["ops_pct"], result["us"]) == (60.0, 10.0, 5e5)
    assert Result("attention", "m", "w", 1, 1.0, 1, 10**10).figures(peaks)["ops_pct"] == 10.0


def test_timing() -> None:
    calls: list[str] = []
    rotation = Rotation([lambda: calls.append("x"), lambda: calls.append("y")])
    for _ in range(3):
        rotation()
    assert calls == ["x", "y", "x"]
    assert repeat_count(lambda: None, 0) == 1
    assert seconds_of(lambda: time.sleep(0.01), 0.02, 2) >= 0.01
    order: list[str] = []
    a, b = in_turns(lambda: order.append("a"), lambda: order.append("b"), 0, 4)
    assert (len(a), len(b)) == (4, 4)
    assert order[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_the_command(octavo: Octavo) -> None:
    some = ("--types", "Q4_1,F16", "--rows", "1,3", "--contexts", "40", "--batches", "1,2")
    r = octavo.json("kernels", *FAST, *some)
    assert r["peaks"]["threads"] == 2
    assert all(r["peaks"][name] > 0 for name in ("read", "fma", "dot"))
    found = r["kernels"]
    assert {k["kernel"] for k in found} == {"linear", "attention", "elementwise"}
    linear = [k for k in found if k["kernel"] == "linear"]
    assert len(linear) == 5 * 2 * 2  # maps, types, rows
    assert {k["what"] for k in linear} >= {"qkv 960x576 Q4_1", "head 49152x576 F16"}
    assert [k["what"] for k in found if k["kernel"] == "attention"] == [
        "decode, 1 x 40", "decode, 2 x 40", "prompt, 1 x 40",
    ]  # fmt: skip
    names = {k["what"] for k in found if k["kernel"] == "elementwise"}
    assert names == {"rms_norm", "rms_norm + residual", "silu_mul", "rope_and_store", "copy_tiles"}
    for k in found:
        assert k["gb_per_s"] > 0
        assert k["read_pct"] == pytest.approx(1e11 * k["gb_per_s"] / r["peaks"]["read"])
        peak = r["peaks"]["dot" if "Q4_1" in k["what"] else "fma"]
        assert k["ops_pct"] == pytest.approx(1e11 * k["gop_per_s"] / peak)
    code, out, _ = octavo(
        "kernels", *FAST, "--kernels", "elementwise", "--rows", 1, "--isa", "portable"
    )
    assert code == 0
    assert "portable; load average" in out
    assert "silu_mul" in out


def test_paged_against_contiguous(octavo: Octavo) -> None:
    some = ("--paged-vs-contiguous", "--contexts", "100", "--batches", "1,3")
    r = octavo.json("kernels", *FAST, *some)
    assert [(p["context"], p["batch"]) for p in r["paged"]] == [(100, 1), (100, 3)]
    for p in r["paged"]:
        assert 0 < p["low"] <= p["ratio"] <= p["high"]  # one round: all the same
        assert p["ratio"] == pytest.approx(p["contiguous_us"] / p["paged_us"])
    code, out, _ = octavo("kernels", *FAST, *some)
    assert (code, "Contiguous / paged" in out) == (0, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--types", "Q9"), "--types: expected all, or some of F32"),
        (("--models", "gpt"), "--models: expected all, or some of smollm2-135m"),
        (("--kernels", "x"), "--kernels: expected all, or some of linear"),
        (("--rows", "0"), "--rows: expected numbers of at least 1"),
        (("--isa", "sse"), "'sse' is not one of 'portable', 'avx2', 'avx512', 'avx512bf16'"),
        (("--rounds", 0), "--rounds: expected at least 1"),
    ],
)
def test_wrong_flags(octavo: Octavo, args: tuple[object, ...], message: str) -> None:
    code, out, err = octavo("kernels", *FAST, *args)
    assert (code, out) == (2, "")
    assert message in err

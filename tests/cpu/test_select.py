"""Which op set a device setting leads to, and the instruction set within it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time

import pytest

from octavo.errors import ConfigError
from octavo.ops.select import make_ops

ISAS = ("portable", "avx2", "avx512", "avx512bf16")


@pytest.fixture
def no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an installation without a compiler."""
    import octavo

    monkeypatch.setitem(sys.modules, "octavo._native", None)  # makes the import fail
    monkeypatch.delattr(octavo, "_native", raising=False)
    monkeypatch.delitem(sys.modules, "octavo.ops.cpu", raising=False)


@pytest.mark.usefixtures("no_native")
def test_auto_falls_back_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert make_ops("auto", 2).name == "reference"
    (record,) = caplog.records
    assert "C++17 compiler" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.usefixtures("no_native")
def test_cpu_without_kernels_names_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"--device cpu: .* install a C\+\+17 compiler"):
        make_ops("cpu", 2)


def test_unknown_device() -> None:
    with pytest.raises(ConfigError, match="expected auto, cpu or reference, got 'gpu'"):
        make_ops("gpu", 1)


def test_native_kernels_are_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("octavo._native", reason="the native kernels are not built")
    monkeypatch.delenv("OCTAVO_ISA", raising=False)
    assert make_ops("auto", 1).name == f"cpu-{native.best_isa()}"
    monkeypatch.setenv("OCTAVO_ISA", "portable")
    assert make_ops("cpu", 1).name == "cpu-portable"
    assert make_ops("reference", 1).name == "reference"


def test_instruction_sets_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("octavo._native", reason="the native kernels are not built")
    monkeypatch.setenv("OCTAVO_ISA", "sse9")
    with pytest.raises(
        ConfigError, match="expected portable, avx2, avx512 or avx512bf16, got 'sse9'"
    ):
        make_ops("auto", 1)
    lacking = ISAS[ISAS.index(native.best_isa()) + 1 :]
    if not lacking:
        pytest.skip("this machine has every instruction set")
    monkeypatch.setenv("OCTAVO_ISA", lacking[0])
    with pytest.raises(ConfigError, match=f"cannot run '{lacking[0]}'"):
        make_ops("auto", 1)


def test_idle_threads_use_no_cpu() -> None:
    native = pytest.importorskip("octavo._native", reason="the native kernels are not built")
    context = native.Context(4)
    time.sleep(0.05)  # the workers have gone to sleep by now
    before = sum(os.times()[:2])
    time.sleep(0.3)
    assert sum(os.times()[:2]) - before < 0.1
    assert context.threads == 4


@pytest.mark.parametrize("threads", [0, 1025])
def test_thread_counts_that_cannot_be(threads: int) -> None:
    native = pytest.importorskip("octavo._native", reason="the native kernels are not built")
    with pytest.raises(ValueError, match=f"threads: expected 1 to 1024, got {threads}"):
        native.Context(threads)


def test_importing_octavo_does_not_load_the_kernels() -> None:
    code = "import sys, octavo; assert 'octavo._native' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_attention_that_may_not_round(monkeypatch: pytest.MonkeyPatch) -> None:
    native = pytest.importorskip("octavo._native")
    monkeypatch.delenv("OCTAVO_ISA", raising=False)
    best = native.best_isa()
    expected = "avx512" if best == "avx512bf16" else best
    assert make_ops("cpu", 1, may_round=False).name == f"cpu-{expected}"
    monkeypatch.setenv("OCTAVO_ISA", best)  # asked for by name
    assert make_ops("cpu", 1, may_round=False).name == f"cpu-{best}"

"""--packed-cache: the same tokens with and without; kept if it is asked for and worth it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.models import packed_copy

pytest.importorskip("octavo._native", reason="the native kernels are not built")


def tokens(model: Path, **settings: bool) -> list[int]:
    """Greedy tokens of a model quantised while loading; a copy that is being written is there then."""
    with LLM(str(model), quantization="q4", num_kv_blocks=20, max_model_len=64, **settings) as llm:
        params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
        (output,) = llm.generate("the quick brown fox", params)
    for thread in threading.enumerate():
        if thread.name == "packed-copy":
            thread.join()
    return list(output.outputs[0].token_ids)


def test_kept_if_asked_for_and_worth_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    kept = tmp_path / "packed"
    expected = tokens(tiny_model)  # packed in no time: not worth it
    assert len(expected) == 12
    assert not kept.exists()
    monkeypatch.setattr(packed_copy, "WORTH_SECONDS", -1.0)
    assert tokens(tiny_model, packed_cache=False) == expected
    assert not kept.exists()
    assert tokens(tiny_model) == expected
    (file,) = kept.iterdir()
    made = file.stat()
    assert tokens(tiny_model) == expected
    used = file.stat()
    assert used.st_ino == made.st_ino  # not written again
    assert used.st_mtime_ns > made.st_mtime_ns  # but marked as used
    assert tokens(tiny_model, packed_cache=False) == expected

"""`octavo verify`: all regimes happen on a tiny model, and a fault in any of them is noticed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.verify.regimes import REGIMES
from octavo.bench.verify.requests import drawn
from octavo.cli import main
from tiny_models import make_hf, make_variant

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def octavo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process: (exit code, stdout, stderr)."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["octavo", *map(str, args)])
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = int(exit.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def verify(octavo: Run, tiny_model: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs the command on the tiny model: exit code, and rows by name."""

    def run(*args: object, model: Path = tiny_model) -> tuple[int, dict[str, Any]]:
        code, out, err = octavo("verify", model, "--json", "-", *args)
        assert out, err
        return code, {row["name"]: row for row in json.loads(out)["regimes"]}

    return run


def test_every_regime_happens_and_equals_the_cold_run(octavo: Run, tiny_model: Path) -> None:
    code, out, err = octavo("verify", tiny_model)
    assert (code, err) == (0, ""), out
    lines = out.splitlines()
    assert [line[:30].strip() for line in lines[2:-2]] == [r.name for r in REGIMES]
    assert all("  yes  " in line for line in lines[2:-2])
    assert lines[-1] == "The same tokens and log-probabilities, bit by bit, in all regimes."


def test_counts_and_tokens(verify: Any) -> None:
    code, rows = verify("--num-requests", 9, "--max-tokens", 30, "--kv-cache-dtype", "float32")
    assert code == 0
    for regime in REGIMES:
        row = rows[regime.name]
        asked = [a for a in drawn(9, 512, 16) if regime.takes(a.params)]
        tokens = sum(min(a.num_tokens, 30) * a.params.n for a in asked)
        assert all(row["counts"][name] > 0 for name in regime.evidence), row
        if not regime.forks:
            assert row["tokens"] == tokens * regime.passes
    cold = rows["alone, cold, one thread"]["counts"]
    assert not any(cold.values())


@pytest.mark.parametrize("variant", ["mistral-window", "qwen2-window", "llama-dynamic"])
def test_windows_and_positions_that_depend_on_the_longest_context(
    verify: Any, variant: str, tmp_path: Path
) -> None:
    model = make_variant(tmp_path / variant, variant)
    args = ("--num-requests", 6, "--max-tokens", 24, "--few-blocks", 1)
    code, rows = verify(*args, model=model)
    assert all(row["equal"] for row in rows.values()), rows
    # Blocks that fell out of a small window are not lacking: there may be no preemption.
    assert code == 0 or [name for name, row in rows.items() if not row["happened"]]
    assert all(row["happened"] for name, row in rows.items() if "preempted" not in name)


def test_other_settings(verify: Any) -> None:
    args = ("--device", "reference", "--num-requests", 8, "--max-tokens", 24, "--block-size", 32)
    code, rows = verify(*args, "--only", "preempted: blocks", "--only", "forked")
    assert code == 0
    assert len(rows) == 4  # with the cold one


def spoil_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.runner.kv_storage import KVStorage

    monkeypatch.setattr(KVStorage, "execute", lambda self, moves: None)


def spoil_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of every block that comes back is another."""
    from octavo.runner.tier_storage import TierStorage

    from_host = TierStorage._from_host

    def spoilt(self: Any, moves: Any, outcome: Any) -> None:
        from_host(self, moves, outcome)
        for move in moves:
            self.device.rows[move.dst][1] ^= 1

    monkeypatch.setattr(TierStorage, "_from_host", spoilt)


def spoil_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.runner.tier_storage import TierStorage

    settle = TierStorage._settle

    def spoilt(self: Any, disk: Any, wait: float, outcome: Any) -> None:
        settle(self, disk, wait, outcome)
        for move in outcome.arrived:
            self.device.rows[move.dst][1] ^= 1

    monkeypatch.setattr(TierStorage, "_settle", spoilt)


def spoil_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests find the blocks of others who began otherwise."""
    from octavo.kv import prefix
    from octavo.kv.prefix import Key

    def make_key(parent: bytes, token_ids: Any) -> Key:
        key = prefix_make_key(b"", token_ids)
        return Key(key.hash, parent, key.tokens)

    prefix_make_key = prefix.make_key
    monkeypatch.setattr(prefix, "make_key", make_key)


def spoil_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every guess counts as right."""
    from octavo.sched.update import Booking

    book = Booking._book_guesses

    def spoilt(self: Any, seq: Any, run: Any, end: int) -> None:
        drawn = self._result.sampled[seq.seq_id]
        for i in range(run.num_guesses):
            drawn[i] = type(drawn[i])(run.token_ids[i - run.num_guesses], drawn[i].logprob)
        book(self, seq, run, end)

    monkeypatch.setattr(Booking, "_book_guesses", spoilt)


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (spoil_copies, "prefixes shared, to the token"),
        (spoil_copies, "forked (n = 3)"),
        (spoil_host, "from host"),
        (spoil_host, "preempted: sequence, host"),
        (spoil_disk, "from disk after a restart"),
        (spoil_disk, "preempted: sequence, disk"),
        (spoil_guesses, "guessed tokens"),
        (spoil_hits, "all found again"),
    ],
)
def test_a_fault_is_noticed(
    spoil: Callable[[pytest.MonkeyPatch], None],
    name: str,
    octavo: Run,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(monkeypatch)
    code, out, _ = octavo("verify", tiny_model, "--only", name)
    assert code == 1
    line = next(line for line in out.splitlines() if line.startswith(name))
    assert "  NO  " in line, out
    assert "\n  request " in out
    assert "NOT THE SAME" in out


def test_what_did_not_happen_is_no_proof(octavo: Run, tiny_model: Path) -> None:
    code, out, _ = octavo("verify", tiny_model, "--num-requests", 1, "--only", "together")
    assert code == 1
    assert out.count("DID NOT HAPPEN: no steps of several sequences") == 2
    assert "NOT THE SAME" not in out


def test_requests_of_a_file(octavo: Run, verify: Any, tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    requests = [{"prompt": [100 + i, 7, 8, 9, i] * 12, "max_tokens": 6} for i in range(5)]
    requests.append({"prompt": "The octavo was", "max_tokens": 9})
    path.write_text(json.dumps({"requests": requests}))
    code, rows = verify("--workload", path, "--only", "together", "--only", "prefixes shared")
    assert code == 0  # although they share nothing: some that do are added
    assert rows["together"]["tokens"] == (5 + 3) * 6 + 9
    code, rows = verify("--workload", path, "--num-requests", 2, "--only", "together")
    assert rows["together"]["tokens"] == (2 + 2) * 6
    assert code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"requests": [{"prompt": [1]}]}', "KeyError: 'max_tokens'"),
        ('{"requests": [{"prompt": [], "max_tokens": 1}]}', "at least one token"),
        ('{"requests": [{"prompt": [1], "max_tokens": 0}]}', "empty"),
        ('{"requests": [{"prompt": [1], "max_tokens": "x"}]}', "max_tokens"),
        ('{"requests": [{"prompt": [5], "max_tokens": 512}]}', "1 + 512 in request 0"),
        ('{"requests": []}', "empty"),
    ],
)
def test_a_file_that_is_none(
    octavo: Run, tiny_model: Path, tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "w.json"
    if text is not None:
        path.write_text(text)
    code, _, err = octavo("verify", tiny_model, "--workload", path)
    assert code == 2
    assert err.startswith("octavo: --workload: expected ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--only", "nought"), 2, "expected a part of a regime's name, got 'nought'"),
        (("--json", "/no/such/folder/x"), 2, "--json"),
        (("--num-requests", "0"), 2, "--num-requests"),
        (("--max-model-len", "600"), 2, "--max-model-len: expected at most 512"),
    ],
)
def test_errors(
    octavo: Run, tiny_model: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    got, _, err = octavo("verify", tiny_model, *args)
    assert (got, message in err) == (code, True), err


def test_drawn_requests_are_the_same_each_time() -> None:
    requests = drawn(12, 49152, 16)
    assert requests == drawn(12, 49152, 16)
    assert all(100 <= i < 30_000 for a in requests for i in a.prompt)  # type: ignore[operator]
    assert {a.params.n for a in requests} == {1, 2}
    assert any(a.params.is_greedy for a in requests)
    assert not all(a.params.is_greedy for a in requests)


def test_a_tiny_vocabulary_and_a_short_context(verify: Any, tmp_path: Path) -> None:
    model = make_hf(tmp_path / "m", "llama", vocab_size=300)
    code, rows = verify("--num-requests", 4, "--only", "alone, several", model=model)
    assert (code, len(rows)) == (0, 2)
    code, rows = verify("--num-requests", 8, "--max-model-len", 64, "--only", "preempted: blocks")
    assert code == 0

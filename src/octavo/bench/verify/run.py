"""`octavo verify`: every regime against the cold run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.bench import report
from octavo.bench.verify.compare import Answers, Difference, differences
from octavo.bench.verify.engines import (
    Demand,
    MakeModel,
    answers,
    complete,
    run_passes,
    settings_of,
)
from octavo.bench.verify.forks import forked, unforked
from octavo.bench.verify.options import VerifyOptions
from octavo.bench.verify.regimes import COLD, REGIMES, Regime
from octavo.bench.verify.requests import Asked, requests_of
from octavo.bench.verify.show import as_json, show_end, show_head, show_row
from octavo.bench.verify.watch import Watch
from octavo.config import ModelConfig
from octavo.errors import ConfigError


@dataclass(slots=True)
class Row:
    """What came of one regime. `missing`: evidence that is not there."""

    regime: Regime
    num_requests: int
    num_tokens: int = 0
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    differences: list[Difference] = field(default_factory=list)
    problem: str = ""

    @property
    def is_equal(self) -> bool:
        """Nothing differs from the cold run."""
        return not (self.differences or self.problem)

    @property
    def is_good(self) -> bool:
        """It happened, and nothing differs."""
        return self.is_equal and not self.missing


class Verification:
    """One run of the command: the requests, and what they give when nothing is in their way."""

    def __init__(self, make: MakeModel, options: VerifyOptions, max_model_len: int | None) -> None:
        self._options = options
        self._num_threads = options.threads or max(2, len(os.sched_getaffinity(0)))
        common = {
            "block_size": options.block_size,
            "kv_cache_dtype": options.kv_cache_dtype,
            "device": options.device,
            "threads": self._num_threads,
        }
        with make(common) as llm:
            self._block_bytes: int = llm.built.kv_size.shape.block_bytes
            self.asked = requests_of(options, llm.built.limits, llm.built.tokenizer)
        # Some models compute otherwise if the context may become longer: as long in all regimes.
        longest = max(len(one.prompt) + one.num_tokens for one in self.asked)
        common["max_model_len"] = self._max_model_len = max_model_len or longest
        self._make: MakeModel = lambda settings: make({**common, **settings})

    def run_cold(self) -> Row:
        """The reference: each request alone, on one thread, with nothing cached."""
        begin = time.perf_counter()
        with self._make(COLD.settings) as llm:
            self.expected = answers(complete(llm, self.asked, is_alone=True))
        return Row(COLD, len(self.asked), _num_tokens(self.expected), time.perf_counter() - begin)

    def run(self, regime: Regime) -> Row:
        """Every pass of a regime, compared."""
        begin = time.perf_counter()
        asked = [one for one in self.asked if regime.takes(one.params)]
        if regime.forks:
            asked = forked(asked)
        demand = Demand(asked, self._options.block_size, self._max_model_len)
        sizes = demand.few(self._options.few_blocks) if regime.is_short else [demand.many]
        for num_blocks in sizes:
            row = self._attempt(regime, asked, demand, num_blocks)
            if not row.missing or not row.is_equal:
                break
        row.seconds = time.perf_counter() - begin
        return row

    def _attempt(
        self, regime: Regime, asked: Sequence[Asked], demand: Demand, num_blocks: int
    ) -> Row:
        row = Row(regime, len(asked))
        watch = Watch(self._options.block_size, regime.settings.get("threads", self._num_threads))
        with tempfile.TemporaryDirectory(prefix="octavo-verify-") as folder:
            settings = settings_of(regime, num_blocks, demand, self._block_bytes, Path(folder))
            try:
                passes = run_passes(self._make, regime, settings, asked, watch)
            except AssertionError as error:
                row.problem = f"the books are wrong: {error}"
                passes = []
        for outputs in passes:
            got = answers(outputs)
            row.num_tokens += _num_tokens(got)
            row.differences += self._compare(regime, asked, outputs, got)
        row.counts = dict(watch.counts)
        row.missing = tuple(
            name for name in regime.evidence if watch.counts[name] <= _LEAST.get(name, 0)
        )
        return row

    def _compare(
        self, regime: Regime, asked: Sequence[Asked], outputs: Sequence[Any], got: Answers
    ) -> list[Difference]:
        if not regime.forks:
            pairs = zip(self.asked, self.expected, strict=True)
            return differences([answer for one, answer in pairs if regime.takes(one.params)], got)
        with self._make(COLD.settings) as llm:
            return unforked(llm, asked, outputs, got)


def verify(make: MakeModel, model: ModelConfig, options: VerifyOptions) -> bool:
    """Run, print, and say whether all is well: every regime happened and equals the cold run."""
    report.check_json(options.json)
    regimes = [r for r in REGIMES if not options.only or any(t in r.name for t in options.only)]
    if not regimes:
        raise ConfigError(
            f"--only: expected a part of a regime's name, got {options.only[0]!r}; the names are: "
            + "; ".join(r.name for r in REGIMES),
            "only",
        )
    is_shown = options.json != "-"
    if is_shown:
        show_head()
    verification = Verification(make, options, model.max_model_len)
    rows: list[Row] = []
    for regime in (COLD, *regimes):
        rows.append(verification.run(regime) if regime is not COLD else verification.run_cold())
        if is_shown:
            show_row(rows[-1])
    if is_shown:
        show_end(rows)
    report.write_json(options.json, as_json(model.model, rows))
    return all(row.is_good for row in rows)


_LEAST = {"threads": 1}
"""Counts that mean something only above this."""


def _num_tokens(all_answers: Answers) -> int:
    return sum(len(a.token_ids) for each in all_answers for a in each)

"""Engines for the regimes, and running requests on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.bench.verify.compare import Answer, answer_of
from octavo.bench.verify.regimes import Regime
from octavo.bench.verify.requests import Asked
from octavo.bench.verify.watch import Watch
from octavo.errors import EngineError
from octavo.kv.moves import Place
from octavo.sched.promotion import Promotion

MakeModel = Callable[[Mapping[str, Any]], Any]
"""Settings by keyword -> octavo.LLM, which stands above this layer and is handed in."""


class Always(Promotion):
    """Brings back every block that a slower tier has, were it quicker to compute or not."""

    def num_worthwhile(self, places: Sequence[Place]) -> int:
        """All of them."""
        return len(places)


class Demand:
    """How much KV memory requests take. `num_blocks`: if all ran at once and shared nothing."""

    def __init__(self, asked: Sequence[Asked], block_size: int, max_model_len: int) -> None:
        self.num_blocks = sum(
            one.params.num_seqs * -(-(len(one.prompt) + one.num_tokens) // block_size)
            for one in asked
        )
        self.longest = -(-max_model_len // block_size)
        self.most_choices = max(one.params.n for one in asked)

    def few(self, asked: int | None) -> list[int]:
        """Blocks of the regimes that run out of them, to be tried until something happens.

        The longest sequence fits, hardly more.
        """
        if asked is not None:
            return [max(asked, self.longest)]
        return sorted({max(self.num_blocks // part, self.longest) for part in (4, 8, 16)})[::-1]

    @property
    def many(self) -> int:
        """Blocks of the regimes that do not."""
        return max(self.num_blocks, self.longest)


def settings_of(
    regime: Regime, num_blocks: int, demand: Demand, block_bytes: int, folder: Path
) -> dict[str, Any]:
    """Keyword arguments of octavo.LLM."""
    settings: dict[str, Any] = {"num_kv_blocks": num_blocks, **regime.settings}
    if "kv_allocator" in settings:  # all choices of a request must find their runs at once
        num_blocks = demand.most_choices * demand.longest
        settings["num_kv_blocks"] = max(settings["num_kv_blocks"], num_blocks)
    room = 3 * demand.num_blocks * block_bytes
    if regime.host:  # with a disk below it, so small that it overflows
        settings["host_kv_bytes"] = (
            max(1, demand.num_blocks // 8) * block_bytes if regime.disk else room
        )
    if regime.disk:
        settings |= {"disk_kv_path": str(folder), "disk_kv_bytes": room}
    return settings


def complete(llm: Any, asked: Sequence[Asked], is_alone: bool) -> list[Any]:
    """Outputs of requests, one after the other or all together. Raises EngineError if one fails."""
    groups = [[a] for a in asked] if is_alone else [list(asked)]
    outputs = [
        output
        for group in groups
        for output in llm.generate(
            [a.prompt for a in group], [a.params for a in group], use_tqdm=False
        )
    ]
    for output in outputs:
        for choice in output.outputs:
            if choice.error is not None:
                raise EngineError(f"{output.request_id}: {choice.error}")
    return outputs


def answers(outputs: Sequence[Any]) -> list[list[Answer]]:
    """What is compared, by request and choice."""
    return [[answer_of(choice) for choice in output.outputs] for output in outputs]


def run_passes(
    make: MakeModel,
    regime: Regime,
    settings: Mapping[str, Any],
    asked: Sequence[Asked],
    watch: Watch,
) -> list[list[Any]]:
    """Outputs of each pass. The books of every engine are proved at the end (AssertionError)."""
    per_engine = [1] * regime.passes if regime.restarts else [regime.passes]
    passes = []
    for num_passes in per_engine:
        with make(settings) as llm:
            core = llm.built.core
            core.scheduler.promotion = Always(core.scheduler.kv.block_size)
            watch.attach(core)
            for _ in range(num_passes):
                outputs = complete(llm, asked, regime.is_alone)
                passes.append(outputs)
            core.check()
        watch.note_stats(core.stats())  # with what was saved at the end
    watch.note_outputs(passes[-1])
    return passes

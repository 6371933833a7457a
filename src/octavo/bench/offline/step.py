"""`octavo bench step`: where the time of a decode step goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.bench import report
from octavo.bench.offline.model import Model, complete, params_for
from octavo.bench.offline.probe import Watch, swapped, watching
from octavo.bench.options import (
    DatasetOptions,
    OutputOptions,
    StepOptions,
    parse_ints,
)
from octavo.bench.progress import Bar
from octavo.bench.workload.load import load_samples
from octavo.errors import EngineError

PIECES = ("schedule", "inputs", "model", "sample", "update", "books", "text")
"""In order: scheduler.schedule; arrays for the model; its forward pass; moves and choosing tokens;
scheduler.update; the rest of EngineCore.step (times, locks); between steps: detokenising and the
caller."""


def bench_step(llm: Model, options: StepOptions, output: OutputOptions) -> dict[str, Any]:
    """Measure, print, and give the result: seconds per step for each number in flight."""
    report.check_json(output.json)
    sizes = parse_ints("in_flight", options.in_flight)
    measured: dict[int, dict[str, Any]] = {}
    with Bar("in flight", len(sizes) * options.rounds, not output.disable_tqdm) as bar:
        for size in sizes:
            runs = []
            for round_id in range(options.rounds):
                runs.append(measure(llm, size, options, seed=round_id))
                bar.advance()
            runs.sort(key=lambda run: float(run["step"]))
            measured[size] = runs[len(runs) // 2]
    result = {
        "input_len": options.input_len,
        "output_len": options.output_len,
        "in_flight": {str(size): run for size, run in measured.items()},
        "machine": report.machine(),
    }
    report.write_json(output.json, result)
    if output.json != "-":
        _show(measured, options.by_op)
    return result


def measure(llm: Model, size: int, options: StepOptions, seed: int) -> dict[str, Any]:
    """Seconds of one decode step with `size` sequences in flight, whole and by piece: medians over
    the steps.

    Steps that compute more than one token of a sequence (prompts) do not count.
    """
    dataset = DatasetOptions(
        num_prompts=size,
        random_input_len=options.input_len,
        random_output_len=options.output_len,
        vocab_size=llm.built.limits.vocab_size,
    )
    samples = load_samples(dataset, seed + 1)
    watch, core = Watch(), llm.built.core
    with watching(core, watch, options.by_op):
        laps = Laps(watch, core.step, size)
        with swapped(core, "step", laps.step), swapped(core, "on_step", laps.note):
            complete(llm, samples, params_for(samples))
    return pieces(laps.decodes())


class Laps:
    """The watch's times of each plan, and the time from a plan to the next."""

    def __init__(self, watch: Watch, step: Callable[[], Any], size: int) -> None:
        self._watch = watch
        self._step = step
        self._size = size
        self._num_steps = 0  # of the last plan, if all sequences were there, with a token each
        self._ended = 0.0
        self._laps: list[tuple[int, dict[str, float]]] = []

    def note(self, plan: Any, _: float) -> None:
        """EngineCore.on_step."""
        is_decode = len(plan.seqs) == self._size and all(run.is_decode for run in plan.seqs)
        self._num_steps = plan.num_steps if is_decode else 0

    def step(self) -> Any:
        """Stands in for EngineCore.step."""
        if self._laps:
            self._laps[-1][1]["text"] = time.perf_counter() - self._ended
        self._watch.reset()
        outputs = self._step()
        self._laps.append((self._num_steps, dict(self._watch.seconds)))
        self._ended = time.perf_counter()
        return outputs

    def decodes(self) -> list[dict[str, float]]:
        """Seconds by name of each decode step but the last, after which there is no next one.

        Of the steps that a plan computes one after the other, each has its part.
        """
        return [
            {name: seconds / num_steps for name, seconds in lap.items()}
            for num_steps, lap in self._laps
            if num_steps and "text" in lap
            for _ in range(num_steps)
        ]


def pieces(laps: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Times of steps by the watch's names -> medians of PIECES, and `step`, their sum. Raises
    EngineError."""
    if not laps:
        raise EngineError(
            "no step had all sequences in flight; "
            "give --kv-cache-memory-bytes or --max-num-seqs more, "
            "or --in-flight less"
        )
    found: dict[str, list[float]] = {name: [] for name in PIECES}
    for lap in laps:
        model = lap["hidden"] + lap["logits"]
        found["schedule"].append(lap["schedule"])
        found["inputs"].append(lap["inputs"])
        found["model"].append(model)
        found["sample"].append(lap["execute"] - lap["inputs"] - model)
        found["update"].append(lap["update"])
        found["books"].append(lap["step"] - lap["schedule"] - lap["execute"] - lap["update"])
        found["text"].append(lap["text"])
    middle = {name: statistics.median(times) for name, times in found.items()}
    ops = [name for name in laps[0] if name.startswith("op ")]
    step = sum(middle.values())
    return {
        "num_steps": len(laps),
        "step": step,
        "pieces": middle,
        "python_share": 1 - middle["model"] / step,
        "ops": {n.removeprefix("op "): statistics.median(lap[n] for lap in laps) for n in ops},
    }


def _show(measured: dict[int, dict[str, Any]], by_op: bool) -> None:
    head = ["piece"]
    for size in measured:
        head += [f"{size} in flight, ms", "%"]
    rows = [
        _row(name, [(m["pieces"][name], m["step"]) for m in measured.values()]) for name in PIECES
    ]
    rows.append(_row("step", [(m["step"], m["step"]) for m in measured.values()]))
    around = [(m["python_share"] * m["step"], m["step"]) for m in measured.values()]
    rows.append(_row("all but model", around))
    report.table("Time of a step", head, rows)
    if by_op:
        names = list(next(iter(measured.values()))["ops"])
        rows = [
            _row(name, [(m["ops"][name], m["step"]) for m in measured.values()]) for name in names
        ]
        left = [
            (m["pieces"]["model"] - sum(m["ops"].values()), m["step"]) for m in measured.values()
        ]
        rows.append(_row("model around its ops", left))
        report.table("Operations", head, rows)


def _row(name: str, values: list[tuple[float, float]]) -> list[str]:
    cells = [name]
    for part, whole in values:
        cells += [f"{1000 * part:.3f}", f"{100 * part / whole:.1f}"]
    return cells

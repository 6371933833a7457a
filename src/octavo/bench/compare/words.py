"""What the figures mean, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.bench.compare.result import Gain, Result


def meaning(result: Result) -> list[str]:
    """For the reader in a hurry: a sentence for each workload, and what paging costs."""
    parts = []
    for workload in result.workloads:
        runs = result.of(workload.name)
        paged, other = runs.get("paged"), runs.get("contiguous-max")
        if paged is None or other is None:
            continue
        ratio = paged.output_tokens_per_s / other.output_tokens_per_s
        wait, before = (sorted(run.ttft)[len(run.ttft) // 2] for run in (paged, other))
        parts.append(
            f"On {workload.name}, paging runs {paged.mean_batch:.1f} requests at once where "
            f"reservations of full length run {other.mean_batch:.1f}, makes {ratio:.1f}x the "
            f"tokens per second, and half of the users see their first token within {wait:.1f} s "
            f"instead of {before:.1f} s."
        )
    if not parts:
        parts.append("Take contiguous-max and paged both to see what paging brings you.")
    if result.overheads:
        parts.append(_cost(result))
    return parts


def _cost(result: Result) -> str:
    worst = min(result.overheads, key=lambda case: case.ratio)
    spread = f"{worst.case}; single turns {worst.least:.2f} to {worst.greatest:.2f}"
    if worst.ratio >= 0.995:
        return f"Where memory is not short, paging costs nothing that shows ({spread})."
    return (
        f"Where memory is not short, paging costs {100 * (1 - worst.ratio):.1f} % at most "
        f"({spread})."
    )


def caution(result: Result) -> str:
    """What to keep in mind about the times; empty if nothing."""
    load, cores = result.machine["load_average"], result.machine["cores"]
    if load <= cores + 1:
        return ""
    return (
        f"This machine was busy with other work (load {load:g} on {cores} cores): counts and "
        "shares of memory are right, times are not worth much. --repeats and --turns take more."
    )


def limits(result: Result) -> Iterator[str]:
    """What the machine allows, and where a claim that was not met would be."""
    line = result.roofline
    if line is None:
        return
    yield (
        f"A decode step takes {1000 * line.fixed:.2f} ms and {1000 * line.each:.2f} ms more for "
        f"each sequence in it; a prompt token takes {1000 * line.prompt:.2f} ms. From "
        f"{line.knee:.0f} sequences on, this machine mostly computes, and a larger batch brings "
        "ever less."
    )
    for gain in result.gains:
        if gain.at_most is not None and not gain.is_met:
            yield _limit(gain, result, line.knee)


def _limit(gain: Gain, result: Result, knee: float) -> str:
    text = (
        f"{gain.workload}, against {gain.against}: {gain.ratio:.2f}x, where {gain.target:g}x is "
        f"claimed for a GPU. Any batch, however large, could bring {gain.at_most:.2f}x here."
    )
    ways = []
    if gain.met_with_requests is not None:
        ways.append(
            f"a KV memory of {gain.met_with_requests} requests of full length "
            f"(now {result.num_full:.0f})"
        )
    if gain.met_with_max_model_len is not None:
        ways.append(f"--max-model-len {gain.met_with_max_model_len} in the same memory")
    if ways:
        return f"{text} By these times {gain.target:g}x is met with {' or '.join(ways)}."
    reach = 1 / gain.batch_against - gain.target / gain.batch
    if reach > 0:
        need = (gain.target - 1) / reach
        text += (
            f" It takes a machine whose step costs as much as {need:.0f} of the sequences in it "
            f"(here {knee:.0f}), prompts aside."
        )
    else:
        text += (
            f" The batch itself is {gain.batch / gain.batch_against:.2f}x as large: more can come "
            "only of longer outputs (which the others reserve from the start) or of shared work."
        )
    return text

"""The table for people, line by line as it comes, and the object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octavo.bench import report
from octavo.bench.verify.watch import WORDS

if TYPE_CHECKING:
    from octavo.bench.verify.run import Row

MOVED = {
    "copied": ("num_cow_copies",),
    "down": ("num_demoted_host", "num_demoted_disk"),
    "up": ("num_promoted_host", "num_promoted_disk"),
}
"""Column of blocks moved -> counts that it adds up."""

LINE = "{:<31}{:>8}{:>8}{:>8}{:>6}{:>6}  {:<6} {}"
NUM_SHOWN = 5
"""Differences that are printed of a regime."""


def show_head() -> None:
    """Print what stands over the columns."""
    print(LINE.format("regime", "requests", "tokens", *MOVED, "equal", "it happened"), flush=True)


def show_row(row: Row) -> None:
    """Print a regime's line, and what is wrong with it."""
    moved = [_sum(row, names) for names in MOVED.values()]
    name, evidence = row.regime.name, _evidence(row)
    equal = "yes" if row.is_equal else "NO"
    line = LINE.format(name, row.num_requests, row.num_tokens, *moved, equal, evidence)
    print(line.rstrip(), flush=True)
    for difference in row.differences[:NUM_SHOWN]:
        print(f"  {difference}", flush=True)
    if len(row.differences) > NUM_SHOWN:
        print(f"  and {len(row.differences) - NUM_SHOWN} more", flush=True)
    if row.problem:
        print(f"  {row.problem}", flush=True)


def show_end(rows: Sequence[Row]) -> None:
    """Print what it all means."""
    if not all(row.is_equal for row in rows):
        print("\nNOT THE SAME: a fault of Octavo or of this machine. Please report it.")
    elif any(row.missing for row in rows):
        print("\nNothing differs, but not all happened: try more requests (--num-requests).")
    else:
        print("\nThe same tokens and log-probabilities, bit by bit, in all regimes.")


def _evidence(row: Row) -> str:
    if row.missing:
        return "DID NOT HAPPEN: no " + ", no ".join(WORDS[name] for name in row.missing)
    return ", ".join(f"{row.counts[name]:,} {WORDS[name]}" for name in row.regime.evidence)


def _sum(row: Row, names: Sequence[str]) -> int:
    return sum(row.counts.get(name, 0) for name in names)


def as_json(model: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that is known of each regime."""
    return {
        "model": model,
        "is_good": all(row.is_good for row in rows),
        "machine": report.machine(),
        "regimes": [
            {
                "name": row.regime.name,
                "requests": row.num_requests,
                "tokens": row.num_tokens,
                "counts": {name: row.counts.get(name, 0) for name in WORDS},
                "evidence": list(row.regime.evidence),
                "happened": not row.missing,
                "equal": row.is_equal,
                "differences": [str(difference) for difference in row.differences],
                "problem": row.problem,
                "seconds": row.seconds,
            }
            for row in rows
        ],
    }

"""How many decode steps a plan may hold: as many as nobody would notice to be one."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from octavo.kv.manager import KVManager
from octavo.sched.plan import ScheduledSeq
from octavo.sched.sequence import Sequence

MOST_SECONDS = 0.012
"""What a plan of several steps may take. A request that comes in the meantime waits for it, and so
long is the time between two deltas of a stream."""

MEMORY = 0.8
"""Earlier measurements fade by this factor with each new one."""


class Pace:
    """Where a step takes a few milliseconds, what is done once for each plan is a large part of it:
    scheduling, waking the event loop, sending. So a plan holds several steps then, `most` at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        """A step of one token for each sequence took so long."""
        before = self._seconds
        self._seconds = before * MEMORY + seconds * (1 - MEMORY) if before else seconds

    @property
    def num_steps(self) -> int:
        """How many there may be; one as long as nothing is known."""
        if not self._seconds:
            return 1
        return max(1, min(self._most, int(MOST_SECONDS / self._seconds)))


def take_steps(most: int, kv: KVManager, seqs: Seq[Sequence], runs: Seq[ScheduledSeq]) -> int:
    """How many steps a plan of `runs`, of these sequences, shall hold; takes the room for them.

    More than one only of decode runs, in blocks that nobody has to give up.
    """
    if most == 1 or not runs or not all(run.is_decode for run in runs):
        return 1
    if any(seq.lookup and not seq.lookup.is_idle(len(seq.tokens)) for seq in seqs):
        return 1  # it may guess well in a moment
    num_steps = min(most, min(seq.max_len - len(seq.tokens) for seq in seqs))
    needed = {seq.seq_id: len(seq.tokens) + num_steps - 1 for seq in seqs}
    if sum(kv.num_new(*need) for need in needed.items()) > kv.num_free:
        return 1
    for run in runs:
        kv.extend(run.seq_id, needed[run.seq_id])
        run.block_ids = kv.block_ids(run.seq_id)
    return num_steps

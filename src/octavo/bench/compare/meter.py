"""What the KV memory holds while an engine runs, step by step.

    whole KV memory  | tokens | later | never | external | free |
                     '------ reserved --------'

    tokens     slots with the keys and values of a token
    later      reserved, empty, and going to be used
    never      reserved, and never used: internal fragmentation
    external   free, but in holes too small for who waits: external fragmentation
    free       free

Shared blocks count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from octavo.bench.offline.probe import swapped
from octavo.kv.contiguous import ContiguousKV
from octavo.kv.manager import KVManager
from octavo.sched.plan import StepPlan
from octavo.sched.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Memory:
    """Slots, or means of slots; `total` is all of them."""

    total: float
    tokens: float
    later: float
    never: float
    external: float

    @property
    def reserved(self) -> float:
        """In use, with a token or without."""
        return self.tokens + self.later + self.never

    @property
    def free(self) -> float:
        """Not in use, and of use to somebody if he came."""
        return self.total - self.reserved - self.external

    def shares(self) -> dict[str, float]:
        """The parts as shares of the whole."""
        names = ("tokens", "later", "never", "external", "free")
        return {name: getattr(self, name) / self.total for name in names}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: how long, how many sequences and tokens, and the memory after it."""

    seconds: float
    num_seqs: int
    num_tokens: int
    memory: Memory


class Meter:
    """Fills `steps` while `metering`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.steps: list[Step] = []

    def note(self, plan: StepPlan, seconds: float) -> None:
        """EngineCore.on_step."""
        memory, num = memory_of(self._scheduler), plan.num_steps
        step = Step(seconds / num, len(plan.seqs), plan.num_tokens // num, memory)
        self.steps += [step] * num


@contextmanager
def metering(core: Any) -> Iterator[Meter]:
    """Watch an EngineCore."""
    meter = Meter(core.scheduler)
    with swapped(core, "on_step", meter.note):
        yield meter


def memory_of(scheduler: Scheduler) -> Memory:
    """What the KV memory is used for now."""
    kv = scheduler.kv
    total, num_used = kv.pool.num_blocks * kv.block_size, kv.pool.num_used * kv.block_size
    never = 0
    for seq_id, seq in scheduler.sequences.items():
        if kv.holds(seq_id):
            never += max(0, _reserved(kv, seq_id) * kv.block_size - seq.max_len)
    tokens = kv.num_tokens_in_use
    external = total - num_used if _waits_for_a_hole(scheduler) else 0
    return Memory(total, tokens, num_used - tokens - never, never, external)


def _reserved(kv: KVManager, seq_id: str) -> int:
    if isinstance(kv, ContiguousKV):
        return kv.num_reserved(seq_id)
    return len(kv.block_ids(seq_id))


def _waits_for_a_hole(scheduler: Scheduler) -> bool:
    """True if the first in the queue needs a run, and no hole is large enough."""
    kv, first = scheduler.kv, next(iter(scheduler.waiting), None)
    if first is None or not isinstance(kv, ContiguousKV) or not kv.holds(first.seq_id):
        return False
    return kv.lacking(first.seq_id, len(first.tokens)) > 0


def mean_memory(steps: Sequence[Step]) -> Memory:
    """The mean over the steps in which anybody held memory."""
    busy = [s.memory for s in steps if s.memory.reserved]
    num = max(1, len(busy))
    parts = ("total", "tokens", "later", "never", "external")
    return Memory(*(sum(getattr(m, part) for m in busy) / num for part in parts))

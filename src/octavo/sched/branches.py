"""What becomes of a group's sequences after each token: forked, dropped, or one token longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.kv.manager import KVManager
from octavo.sched.beam import BeamGroup, Hypothesis
from octavo.sched.outputs import SeqOutput
from octavo.sched.sequence import Sequence

if TYPE_CHECKING:
    from octavo.sched.scheduler import Scheduler


def branch(scheduler: Scheduler, group: BeamGroup) -> bool:
    """Take a settled group one token further; False, with nothing changed, if its search is over.

    The first of a beam's children takes over its sequence, the others fork it. Beams without any
    are dropped first, so that their blocks and seats serve the forks.
    """
    extensions = group.extend()
    if not extensions:
        return False
    parents = {parent for parent, _ in extensions}
    for seq in group.live:
        if seq not in parents:
            scheduler.finish(seq)
        elif seq.forks:
            scheduler.take_forks(seq)
    taken = {parent.index for parent in parents}
    spare = (index for index in range(group.width) if index not in taken)
    live: list[Sequence] = []
    for parent, _ in extensions:
        live.append(scheduler.fork(parent, next(spare)) if parent in live else parent)
    for seq, (_, beam) in zip(live, extensions, strict=True):
        seq.beam = beam
        seq.tokens.append(beam.logprobs[-1].token_id)
    group.live = live
    return True


def close(scheduler: Scheduler, group: BeamGroup, error: str | None = None) -> list[SeqOutput]:
    """End a group: drop its beams, give out the best outputs, or `error` for each choice."""
    first = group.live[0]
    for seq in group.live:
        scheduler.finish(seq, is_sound=error is None)
    group.live = []
    outputs = []
    for index in range(group.request.params.n):
        if error is None and index < len(group.finished):
            output = _output(group.finished[index], first, index)
            scheduler.stats.generation_tokens += len(output.token_ids)
        else:
            reason = error or "the search found fewer outputs than n: the rest was ruled out"
            output = SeqOutput(group.request.request_id, index, (), (), "error", error=reason)
        outputs.append(output)
    if error is None:
        outputs[0].prompt_logprobs = group.prompt_logprobs
    return outputs


def _output(best: Hypothesis, seq: Sequence, index: int) -> SeqOutput:
    return SeqOutput(
        seq.request.request_id,
        index,
        tuple([token.token_id for token in best.logprobs]),
        best.logprobs,
        best.finish_reason,
        best.stop_reason,
        seq.num_cached,
    )


def settled_sibling(kv: KVManager, seq: Sequence) -> Sequence | None:
    """A beam of the same group that can lend its blocks: it is computed and waits for `seq`.

    It computes them again when its turn comes. Without this, beams that came first could hold all
    blocks and wait for one that gets none.
    """
    if seq.beam is None:
        return None
    holders = [
        other
        for other in seq.beam.group.live
        if other.beam is not None and other.beam.is_settled and kv.block_ids(other.seq_id)
    ]
    return max(holders, key=lambda other: other.key, default=None)

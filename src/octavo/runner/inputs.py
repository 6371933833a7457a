"""From a StepPlan to the arrays of a model's Batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from octavo.ops.base import I32, TILE, AttentionInputs, Batch, Ops
from octavo.runner.decode import DecodeArrays, is_decode
from octavo.runner.kv_storage import KVStorage
from octavo.runner.sampler import Draw
from octavo.sched.plan import ScheduledSeq


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows of `seq` whose logits give the log-probabilities of its `next_token_ids`.

    They are entries first .. first + len(next_token_ids) of `Batch.logits_rows`.
    """

    seq: ScheduledSeq
    first: int


@dataclass(slots=True)
class StepInputs:
    """A batch, and what is to be done with the logits of its rows. Holds until the next is built.

    The rows that `draws` draw from are the first num_sample_rows of logits_rows.
    """

    batch: Batch
    num_sample_rows: int
    draws: list[Draw]
    prompts: list[PromptRows]


@dataclass(slots=True)
class _Table:
    """The tiles of one sequence, kept from step to step: a table mostly grows at its end."""

    block_ids: tuple[int, ...]
    tiles: I32


@dataclass(slots=True)
class InputBuilder:
    """Builds the inputs of each step; remembers the tile tables of the step before."""

    ops: Ops
    storage: KVStorage
    _tables: dict[str, _Table] = field(default_factory=dict)
    _decode: DecodeArrays | None = None  # of the last step of that kind

    def build(self, seqs: Sequence[ScheduledSeq]) -> StepInputs:
        """Arrays for `seqs` (at least one), rows in their order.

        They may be those of the step before, changed in place.
        """
        if is_decode(seqs):
            return self._build_decode(seqs)
        num_seqs = len(seqs)
        starts = np.array([s.start for s in seqs], np.int32)
        lens = np.array([len(s.token_ids) for s in seqs], np.int32)
        context_lens = starts + lens
        row_starts = _offsets(lens)
        num_rows = int(row_starts[-1])
        token_ids = np.fromiter(chain.from_iterable(s.token_ids for s in seqs), np.int32, num_rows)
        tile_starts = _offsets((context_lens + (TILE - 1)) // TILE)
        self._forget_others(seqs)
        tiles = np.concatenate([self._tiles_of(s) for s in seqs])

        seq_of_row = np.repeat(np.arange(num_seqs, dtype=np.int32), lens)
        rows = np.arange(num_rows, dtype=np.int32)
        positions = rows + (starts - row_starts[:-1])[seq_of_row]
        slots = tiles[tile_starts[seq_of_row] + positions // TILE] * TILE + positions % TILE
        attention = AttentionInputs(row_starts, context_lens, tiles, tile_starts)

        logits_rows, draws, prompts, num_sample_rows = _outputs(seqs, row_starts)
        batch = Batch(
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            attention=self.ops.plan_attention(attention),
            logits_rows=logits_rows,
            kv=self.storage.array,
        )
        return StepInputs(batch, num_sample_rows, draws, prompts)

    def _build_decode(self, seqs: Sequence[ScheduledSeq]) -> StepInputs:
        """A token for each sequence, as in the step before if that was one for the same ones."""
        arrays, self._decode = self._decode, None  # an error leaves nothing half changed behind
        if arrays is None or not arrays.are_for(seqs):
            self._forget_others(seqs)
            arrays = DecodeArrays(seqs, self._tiles_of, arrays)
        draws = arrays.fill(seqs)
        self._decode = arrays
        batch = Batch(
            arrays.token_ids,
            arrays.positions,
            arrays.slots,
            self.ops.plan_attention(arrays.attention),
            arrays.logits_rows,
            self.storage.array,
        )
        return StepInputs(batch, len(seqs), draws, [])

    def _tiles_of(self, seq: ScheduledSeq) -> I32:
        """The tiles that hold the tokens of `seq` after this step, in order."""
        table = self._update(self._tables.get(seq.seq_id), seq.block_ids)
        self._tables[seq.seq_id] = table
        count = -(-(seq.start + len(seq.token_ids)) // TILE)
        if count > len(table.tiles):
            raise ValueError(
                f"sequence {seq.seq_id}: expected blocks for {count} tiles, got {len(table.tiles)}"
            )
        return table.tiles[:count]

    def _forget_others(self, seqs: Sequence[ScheduledSeq]) -> None:
        """Keep the tables of `seqs` alone."""
        ids = {s.seq_id for s in seqs}
        self._tables = {seq_id: t for seq_id, t in self._tables.items() if seq_id in ids}

    def _update(self, table: _Table | None, block_ids: tuple[int, ...]) -> _Table:
        """`table` if it still holds, longer if blocks were added, else a new one."""
        if table is None:
            return _Table(block_ids, self._expand(block_ids))
        old = table.block_ids
        if block_ids == old:
            return table
        kept = len(old) if block_ids[: len(old)] == old else 0
        added = self._expand(block_ids[kept:])
        return _Table(block_ids, np.concatenate((table.tiles, added)) if kept else added)

    def _expand(self, block_ids: tuple[int, ...]) -> I32:
        """Block ids -> tile ids."""
        blocks = np.fromiter(block_ids, np.int32, len(block_ids))
        per_block = self.storage.shape.tiles_per_block
        if per_block == 1:
            return blocks
        within = np.arange(per_block, dtype=np.int32)
        return (blocks[:, None] * np.int32(per_block) + within).ravel()


def _offsets(counts: I32) -> I32:
    """[S] counts -> [S + 1] running totals, from 0."""
    out = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=out[1:])
    return out


def _outputs(
    seqs: Sequence[ScheduledSeq], row_starts: I32
) -> tuple[I32, list[Draw], list[PromptRows], int]:
    """Which rows need logits: first those that are sampled from, then the prompts' rows."""
    ends = row_starts.tolist()
    rows: list[int] = []
    draws: list[Draw] = []
    for i, seq in enumerate(seqs):
        if seq.samples:
            # Samples of one row (the choices of a request) share its logits.
            first = seq.samples[0].row
            for sample in seq.samples:
                draws.append((len(rows) + sample.row - first, seq.position(sample), sample))
            rows.extend(range(ends[i + 1] + first, ends[i + 1]))
    num_sample_rows = len(rows)
    prompts: list[PromptRows] = []
    for i, seq in enumerate(seqs):
        if seq.prompt_logprobs is not None and seq.next_token_ids:
            prompts.append(PromptRows(seq, len(rows)))
            rows.extend(range(ends[i], ends[i] + len(seq.next_token_ids)))
    return np.array(rows, dtype=np.int32), draws, prompts, num_sample_rows

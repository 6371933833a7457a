"""Steps that compute one token for each of the same sequences: arrays that are kept and refilled.

Such steps come in long rows. Nothing is allocated for them, and tables of tiles are laid one behind
the other again only when one of them has changed. Numbers go into the arrays one by one: up to some
hundred of them, that costs less than a few operations on whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from octavo.ops.base import I32, TILE, AttentionInputs
from octavo.runner.sampler import Draw
from octavo.sched.plan import ScheduledSeq

TilesOf = Callable[[ScheduledSeq], I32]
"""The tiles that hold a sequence's tokens, in order."""


def is_decode(seqs: Sequence[ScheduledSeq]) -> bool:
    """True if each of `seqs` computes one token and draws one after it."""
    for seq in seqs:
        if len(seq.token_ids) != 1 or len(seq.samples) != 1 or seq.next_token_ids:
            return False
    return True


class DecodeArrays:
    """The arrays of decode steps of the same sequences; `fill` makes them those of one step.

    token_ids, positions, slots, logits_rows: int32 [S], as in `ops.base.Batch`.
    """

    def __init__(
        self, seqs: Sequence[ScheduledSeq], tiles_of: TilesOf, before: DecodeArrays | None
    ) -> None:
        """`before`: the arrays of earlier steps, where some of `seqs` may have been."""
        num = len(seqs)
        self.token_ids, self.positions, self.slots, context_lens = np.empty((4, num), np.int32)
        self.logits_rows = np.arange(num, dtype=np.int32)
        self.attention = AttentionInputs(
            row_starts=np.arange(num + 1, dtype=np.int32),
            context_lens=context_lens,
            tiles=np.empty(0, np.int32),
            tile_starts=np.zeros(num + 1, np.int32),
        )
        self._are_joined = False  # attention.tiles are `_tiles`, one after the other
        self._context_lens = context_lens.data
        self._token_ids = self.token_ids.data
        self._positions = self.positions.data
        self._slots = self.slots.data
        self._seq_ids = [seq.seq_id for seq in seqs]
        self._tiles_of = tiles_of
        self._tables: list[tuple[int, ...]] = [()] * num
        self._tiles: list[I32] = [self.attention.tiles] * num
        self._last_slots = [0] * num  # the first slot of the last tile
        if before is not None:
            self._take_over(before)

    def are_for(self, seqs: Sequence[ScheduledSeq]) -> bool:
        """True if `seqs` are the sequences that these arrays are for."""
        return [seq.seq_id for seq in seqs] == self._seq_ids

    def fill(self, seqs: Sequence[ScheduledSeq]) -> list[Draw]:
        """Take in a decode step; what is to be drawn from its rows."""
        draws: list[Draw] = []
        for i, seq in enumerate(seqs):
            start = seq.start
            if seq.block_ids is not self._tables[i] or start // TILE + 1 != len(self._tiles[i]):
                self._change_tiles(i, seq)
            self._token_ids[i] = seq.token_ids[0]
            self._positions[i] = start
            self._context_lens[i] = start + 1
            self._slots[i] = self._last_slots[i] + start % TILE
            draws.append((i, start + 1, seq.samples[0]))
        if not self._are_joined:
            self.attention = AttentionInputs(
                self.attention.row_starts,
                self.attention.context_lens,
                np.concatenate(self._tiles),
                _tile_starts(self._tiles),
            )
            self._are_joined = True
        return draws

    def _change_tiles(self, i: int, seq: ScheduledSeq) -> None:
        """Sequence i has another table than before, or has come to a new tile."""
        self._tables[i] = seq.block_ids
        self._tiles[i] = self._tiles_of(seq)
        self._last_slots[i] = int(self._tiles[i][-1]) * TILE
        self._are_joined = False

    def _take_over(self, before: DecodeArrays) -> None:
        """The tiles of those sequences that were there before."""
        places = {seq_id: place for place, seq_id in enumerate(before._seq_ids)}
        for i, seq_id in enumerate(self._seq_ids):
            place = places.get(seq_id)
            if place is not None:
                self._tables[i] = before._tables[place]
                self._tiles[i] = before._tiles[place]
                self._last_slots[i] = before._last_slots[place]


def _tile_starts(tiles: list[I32]) -> I32:
    """[S] tiles of each sequence -> [S + 1] where they begin."""
    starts = np.zeros(len(tiles) + 1, np.int32)
    np.cumsum([len(part) for part in tiles], out=starts[1:])
    return starts

"""What paging is measured against: each sequence reserves one run of consecutive blocks.

    blocks   | 0 ........ 31 | 32 ..... 39 | 40 ....... 71 | 72 ..... 79 |
             | reserved by A |    free     | reserved by B |    free     |   a request for 12 waits
    A's run  | table: tokens | never or later ..... |                        with 16 free: no hole

The same verbs, block tables and kernels as the paged manager's; tables are the beginnings of the
runs. A run is taken when a sequence starts, in the first hole that is large enough, and kept until
it ends. Nothing is shared or found again, and forks are whole copies in runs of their own, reserved
together with their parent's.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

from octavo.kv.manager import KVManager
from octavo.kv.moves import Copy, Move, MoveOutcome
from octavo.kv.table import Table

RESERVATIONS: dict[str, Callable[[int, int], int]] = {
    "contiguous-max": lambda num_tokens, max_model_len: max_model_len,
    "contiguous-pow2": lambda num_tokens, max_model_len: min(
        1 << (num_tokens - 1).bit_length(), max_model_len
    ),
    "contiguous-oracle": lambda num_tokens, max_model_len: num_tokens,
}
"""(true length of a sequence, longest there can be) -> tokens to reserve room for.

Orca's in the vLLM paper (SOSP 2023, section 6.1): Max, Pow2, Oracle.
"""

Run = range
"""Consecutive block ids."""


def first_fit(taken: Sequence[Run], num_blocks: int, end: int) -> Run | None:
    """The first `num_blocks` blocks below `end` between the runs in `taken`, which are in order."""
    start = 0
    for run in taken:
        if run.start - start >= num_blocks:
            break
        start = run.stop
    return range(start, start + num_blocks) if end - start >= num_blocks else None


class ContiguousKV(KVManager):
    """`allocator`: a name of RESERVATIONS.

    A sequence must be announced by `expect` before it can `extend`; it may not outgrow that.
    """

    def __init__(
        self, num_blocks: int, block_size: int, allocator: str, max_model_len: int
    ) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching=False)
        self.max_model_len = max_model_len
        self._reserve_for = RESERVATIONS[allocator]
        self._expected: dict[str, tuple[int, int]] = {}  # blocks of a run, number of runs
        self._runs: dict[str, list[Run]] = {}  # the sequence's own, then its forks'
        self._taken: list[Run] = []  # all of them, in order
        self._copies: list[Move] = []

    def expect(self, seq_id: str, num_tokens: int, num_seqs: int) -> None:
        """The sequence will come to `num_tokens` tokens at most, in `num_seqs` forks."""
        reserved = self._reserve_for(num_tokens, self.max_model_len)
        self._expected[seq_id] = (self.blocks_for(reserved), num_seqs)

    def num_reserved(self, seq_id: str) -> int:
        """Blocks that are kept for the sequence and its forks to come, with tokens or without."""
        return sum(map(len, self._runs.get(seq_id, ())))

    # -- the verbs ---------------------------------------------------------------------------------

    def num_new(self, seq_id: str, num_tokens: int) -> int:
        """Blocks to be taken for more tokens: none, they are reserved."""
        return 0

    def lacking(self, seq_id: str, num_tokens: int) -> int:
        """0 if the sequence has a run or finds holes for one now; else more than 0.

        As many blocks as are lacking in all, or 1 where the free ones lie in holes too small.
        """
        if seq_id in self._runs or self._find_runs(seq_id) is not None:
            return 0
        num_blocks, num_runs = self._expected[seq_id]
        return max(1, num_blocks * num_runs - self.num_free)

    def extend(self, seq_id: str, num_tokens: int) -> list[int] | None:
        """The table covers the first `num_tokens` tokens; reserves the run if there is none yet.

        None, with nothing changed, if there is no hole for it.
        """
        table = self.tables[seq_id]
        if seq_id not in self._runs:
            found = self._find_runs(seq_id)
            if found is None:
                return None
            self._runs[seq_id] = found
            for run in found:
                insort(self._taken, run, key=lambda run: run.start)
                self.pool.take_these(run)
        run = self._runs[seq_id][0]
        if num_tokens > len(run) * self.block_size:
            raise ValueError(
                f"{seq_id}: {num_tokens} tokens in a run for {len(run) * self.block_size}"
            )
        added = list(run[len(table.block_ids) : self.blocks_for(num_tokens)])
        table.add(*added)
        return added

    def commit(self, seq_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """The first `num_computed` of `token_ids` are in the table's blocks."""
        table = self.tables[seq_id]
        if num_computed > len(table.block_ids) * self.block_size:
            raise ValueError(f"{seq_id}: {num_computed} tokens computed without room for them")
        table.num_committed, table.token_ids = num_computed, token_ids

    def fork(self, seq_id: str, child_id: str) -> None:
        """A second sequence with a copy of all that is computed, in a run that was reserved."""
        if child_id in self.tables:
            raise ValueError(f"{child_id} has a table already")
        table, runs = self.tables[seq_id], self._runs[seq_id]
        if len(runs) < 2:
            raise ValueError(f"{seq_id}: no run is reserved for the fork {child_id}")
        run = runs.pop()
        num_blocks = self.blocks_for(table.num_committed)
        self._runs[child_id] = [run]
        self._expected[child_id] = (len(run), 1)
        self.tables[child_id] = Table(
            table.root,
            list(run[:num_blocks]),
            num_committed=table.num_committed,
            token_ids=table.token_ids,
        )
        # Sources need no pin: copies are made before the step that could write to them.
        self._copies += map(Copy, table.block_ids[:num_blocks], run)
        self.stats.num_cow_copies += num_blocks

    def drop_before(self, seq_id: str, num_tokens: int) -> None:
        """Nothing: a run is kept whole, also what fell out of the attention window."""

    # -- letting go --------------------------------------------------------------------------------

    def give_up(self, seq_id: str, num_blocks: int) -> int:
        """Drop the whole run, and what was computed in it; returns how many blocks came free."""
        return self._vacate(seq_id)

    def free(self, seq_id: str, keep_tail: bool = True) -> None:
        """Drop the run and the table."""
        self._vacate(seq_id)
        self._expected.pop(seq_id, None)
        del self.tables[seq_id]

    def _vacate(self, seq_id: str, *_: object, **__: object) -> int:
        self.tables[seq_id].cut(0, self.block_size)
        runs = self._runs.pop(seq_id, [])
        for run in runs:
            self._taken.remove(run)
            for block_id in run:
                self.pool.release(block_id)
        return sum(map(len, runs))

    # -- moves: copies of forks --------------------------------------------------------------------

    def take_moves(self) -> tuple[Move, ...]:
        """The copies ordered since the last call."""
        moves, self._copies[:] = tuple(self._copies), []
        return moves

    def settle(self, moves: Sequence[Move], outcome: MoveOutcome) -> bool:
        """Copies are done at once: nothing to book."""
        return False

    # -- the books ---------------------------------------------------------------------------------

    @property
    def num_tokens_in_use(self) -> int:
        """Tokens that the runs hold."""
        return sum(table.num_committed for table in self.tables.values())

    def check(self) -> None:
        """Prove that runs, tables and reference counts agree; AssertionError if not."""
        self.memory.check()
        runs = sorted((run for own in self._runs.values() for run in own), key=lambda r: r.start)
        assert runs == self._taken, "a run is nobody's, or missing"
        ids = [block_id for run in runs for block_id in run]
        taken = set(ids)
        assert len(taken) == len(ids), "two runs overlap"
        assert all(0 <= block_id < self.pool.num_blocks for block_id in ids), "a run sticks out"
        for block_id in range(self.pool.num_blocks + 1):
            num = int(block_id in taken)
            assert self.pool.ref_count(block_id) == num, f"block {block_id}: wrong count"
        assert set(self._runs) <= set(self.tables), "a run without a table"
        for seq_id, table in self.tables.items():
            own = self._runs.get(seq_id, [range(0)])[0]
            assert table.block_ids == list(own[: len(table.block_ids)]), f"{seq_id}: not its run"
            assert table.view == tuple(table.block_ids), f"{seq_id}: an old view"
            room = len(table.block_ids) * self.block_size
            assert table.num_committed <= room, f"{seq_id}: no room"

    # -- private -----------------------------------------------------------------------------------

    def _find_runs(self, seq_id: str) -> list[Run] | None:
        num_blocks, num_runs = self._expected[seq_id]
        taken, found = list(self._taken), list[Run]()
        for _ in range(num_runs):
            run = first_fit(taken, num_blocks, self.pool.num_blocks)
            if run is None:
                return None
            found.append(run)
            insort(taken, run, key=lambda run: run.start)
        return found

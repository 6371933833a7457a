from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.runner.inputs import InputBuilder
from octavo.sched.plan import ScheduledSeq
from tests.runner.fakes import ops, storage
from tests.runner.naive import request


@st.composite
def scheduled(draw, block_size):
    seqs = []
    for i in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, 70))
        tokens = tuple(draw(st.lists(st.integers(0, 999), min_size=1, max_size=40)))
        needed = -(-(start + len(tokens)) // block_size) + draw(st.integers(0, 1))
        blocks = tuple(draw(st.lists(st.integers(0, 99), min_size=needed, max_size=needed)))
        samples = tuple(request(index=k) for k in range(draw(st.integers(0, 2))))
        asked = draw(st.sampled_from([None, 0, 3]))
        following = tokens[1:] + (() if samples else (5,)) if asked is not None else ()
        seqs.append(ScheduledSeq(f"s{i}", start, tokens, blocks, samples, asked, following))
    return seqs


@pytest.mark.parametrize("block_size", [16, 32])
@given(st.data())
def test_every_row_lands_where_its_table_says(block_size, data):
    kv = storage(100, block_size)
    builder = InputBuilder(ops, kv)
    for _ in range(data.draw(st.integers(1, 3))):  # tables are remembered between steps
        seqs = data.draw(scheduled(block_size))
        inputs = builder.build(seqs)
        batch = inputs.batch
        rows = [
            (
                t,
                s.start + k,
                s.block_ids[(s.start + k) // block_size] * block_size + (s.start + k) % block_size,
            )
            for s in seqs
            for k, t in enumerate(s.token_ids)
        ]
        assert list(zip(batch.token_ids, batch.positions, batch.slots, strict=True)) == rows
        assert batch.kv is kv.array
        assert all(a.dtype == np.int32 for a in (batch.token_ids, batch.positions, batch.slots))
        wanted = batch.logits_rows.tolist()
        ends = np.cumsum([len(s.token_ids) for s in seqs]).tolist()
        assert wanted[: inputs.num_sample_rows] == [
            e - 1 for s, e in zip(seqs, ends, strict=True) if s.samples
        ]
        assert [r.seq_id for _, _, r in inputs.draws] == [r.seq_id for s in seqs for r in s.samples]
        for prompt in inputs.prompts:
            first = ends[seqs.index(prompt.seq)] - len(prompt.seq.token_ids)
            count = len(prompt.seq.next_token_ids)
            assert wanted[prompt.first : prompt.first + count] == list(range(first, first + count))


def seq(blocks, start=0, tokens=1, seq_id="a"):
    return ScheduledSeq(seq_id, start, tuple(range(tokens)), tuple(blocks))


class Spy:
    """The reference op set, showing what it is asked to plan."""

    def plan_attention(self, inputs):
        return inputs


def test_tables_follow_growth_copy_on_write_and_resumption():
    builder = InputBuilder(Spy(), storage(100, 32))
    for blocks in [(4,), (4, 9), (4, 7), (1, 2), (1, 2, 3), (8,)]:
        start = len(blocks) * 32 - 1
        plan = builder.build([seq(blocks, start)]).batch.attention
        assert plan.tiles.tolist() == [t for b in blocks for t in (2 * b, 2 * b + 1)]
        assert plan.context_lens.tolist() == [start + 1]
        assert plan.tile_starts.tolist() == [0, 2 * len(blocks)]


def test_only_tiles_that_hold_tokens_are_walked():
    plan = InputBuilder(Spy(), storage(100, 32)).build([seq((5, 6, 7), 0, 33)]).batch.attention
    assert plan.tiles.tolist() == [10, 11, 12]
    assert plan.row_starts.tolist() == [0, 33]


def test_a_table_too_short_is_a_bug_and_says_so():
    with pytest.raises(ValueError, match="sequence a: expected blocks for 2 tiles, got 1"):
        InputBuilder(ops, storage()).build([seq((1,), 16)])


@settings(max_examples=60)
@given(st.data(), st.sampled_from([16, 32]))
def test_decode_steps_one_after_the_other(data, block_size):
    """Kept arrays, against the same plain rules, while tables grow, change and come and go."""
    builder = InputBuilder(Spy(), storage(100, block_size))
    draw = data.draw
    tables: dict[str, list[int]] = {}
    lengths: dict[str, int] = {}
    frozen: dict[str, tuple[int, ...]] = {}
    for step in range(draw(st.integers(3, 40))):
        if len(tables) < 2 or draw(st.integers(0, 9)) == 0:
            name = f"s{step}"
            lengths[name], tables[name] = draw(st.integers(0, 70)), []
        elif draw(st.integers(0, 9)) == 0:
            gone = draw(st.sampled_from(sorted(tables)))
            del tables[gone], lengths[gone]
        for name, table in tables.items():
            while len(table) * block_size <= lengths[name]:
                table.append(draw(st.integers(0, 99)))
            if draw(st.integers(0, 9)) == 0:  # a copy on write, or an equal block found
                table[draw(st.integers(0, len(table) - 1))] = draw(st.integers(0, 99))
            if frozen.get(name) != tuple(table):
                frozen[name] = tuple(table)
        seqs = [
            ScheduledSeq(name, lengths[name], (step + i,), frozen[name], (request(seq_id=name),))
            for i, name in enumerate(tables)
        ]
        if draw(st.integers(0, 9)) == 0:  # another kind of step comes between
            builder.build([seq((1,), 0, 5, draw(st.sampled_from(["chunk", *tables])))])
        check_decode(builder.build(seqs), seqs, block_size)
        for name in lengths:
            lengths[name] += 1


def check_decode(inputs, seqs, block_size):
    batch, plan = inputs.batch, inputs.batch.attention
    starts = [s.start for s in seqs]
    tiles = [
        [b * (block_size // 16) + t for b in s.block_ids for t in range(block_size // 16)][
            : s.start // 16 + 1
        ]
        for s in seqs
    ]
    assert batch.token_ids.tolist() == [s.token_ids[0] for s in seqs]
    assert batch.positions.tolist() == starts
    slots = [16 * t[-1] + start % 16 for t, start in zip(tiles, starts, strict=True)]
    assert batch.slots.tolist() == slots
    assert batch.logits_rows.tolist() == list(range(len(seqs)))
    assert plan.row_starts.tolist() == list(range(len(seqs) + 1))
    assert plan.context_lens.tolist() == [start + 1 for start in starts]
    assert plan.tiles.tolist() == [t for each in tiles for t in each]
    assert plan.tile_starts.tolist() == [sum(map(len, tiles[:i])) for i in range(len(seqs) + 1)]
    assert inputs.draws == [(i, s.start + 1, s.samples[0]) for i, s in enumerate(seqs)]
    assert (inputs.num_sample_rows, inputs.prompts) == (len(seqs), [])
    arrays = (batch.token_ids, batch.positions, batch.slots, plan.tiles, plan.tile_starts)
    assert all(a.dtype == np.int32 and a.flags.c_contiguous for a in arrays)


def test_a_step_after_one_that_failed_starts_anew():
    builder = InputBuilder(Spy(), storage(100))
    good = ScheduledSeq("a", 15, (1,), (3,), (request(),))
    builder.build([good])
    with pytest.raises(ValueError, match="sequence a: expected blocks for 2 tiles, got 1"):
        builder.build([ScheduledSeq("a", 16, (1,), good.block_ids, (request(),))])
    check_decode(builder.build([good]), [good], 16)

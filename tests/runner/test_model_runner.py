from __future__ import annotations

from octavo.kv.moves import Copy, MoveOutcome
from octavo.runner.model_runner import HEAD_ROWS, ModelRunner
from octavo.runner.tier_storage import TierStorage
from octavo.sched.plan import ScheduledSeq, StepPlan, StepResult
from tests.runner.fakes import VOCAB, EchoModel, ops, storage
from tests.runner.naive import request


def runner():
    model, kv = EchoModel(), storage(64)
    return ModelRunner(model, ops, TierStorage(kv)), model, kv


def greedy(seq_id, **kw):
    return request(seq_id=seq_id, temperature=0, **kw)


def test_moves_come_before_writes():
    run, _, kv = runner()
    kv.array[3] = 7
    seq = ScheduledSeq("a", 2, (40,), (5,), (greedy("a"),))
    plan = StepPlan(0, (Copy(3, 5),), (seq,))
    run.move(plan.moves, 0.0)
    result = run.execute(plan)
    assert kv.array[5, 0, 1, 0, :4].tolist() == [7, 7, 40, 7]
    assert kv.array[3].max() == 7
    assert result.sampled["a"][0].token_id == 42


def test_moves_alone_and_an_empty_plan():
    run, model, kv = runner()
    kv.array[1] = 3
    assert run.move((Copy(1, 2),), 0.0) == MoveOutcome()
    assert run.execute(StepPlan(1)) == StepResult()
    assert kv.array[2].min() == 3
    assert not model.batches


def test_forked_samples_share_a_row_and_chunks_draw_nothing():
    run, model, _ = runner()
    chunk = ScheduledSeq("long", 0, tuple(range(20)), (0, 1))
    last = ScheduledSeq("b", 0, (4, 5), (2,), (greedy("b"), greedy("b.1", index=1)))
    result = run.execute(StepPlan(0, (), (chunk, last)))
    assert {k: [t.token_id for t in v] for k, v in result.sampled.items()} == {"b": [6], "b.1": [6]}
    assert model.batches[0].logits_rows.tolist() == [21]


def test_a_sequence_whose_logits_are_not_numbers_fails_alone():
    run, _, _ = runner()
    bad = ScheduledSeq("bad", 0, (13,), (0,), (greedy("bad"),))
    good = ScheduledSeq("good", 0, (14,), (1,), (greedy("good"),))
    result = run.execute(StepPlan(0, (), (bad, good)))
    assert result.sampled["good"][0].token_id == 14
    assert list(result.sampled) == ["good"]
    assert "not numbers" in result.failed["bad"]


def test_prompt_logprobs_of_a_long_run_come_in_slices():
    run, model, _ = runner()
    tokens = tuple((3 * i) % VOCAB if (3 * i) % VOCAB != 13 else 1 for i in range(200))
    seq = ScheduledSeq("a", 0, tokens, tuple(range(13)), (greedy("a"),), 1, (*tokens[1:],))
    result = run.execute(StepPlan(0, (), (seq,)))
    entries = result.prompt_logprobs["a"]
    assert model.most_rows == HEAD_ROWS
    assert [e.token_id for e in entries] == list(tokens[1:])
    assert [e.top[0][0] for e in entries] == [(t + p) % VOCAB for p, t in enumerate(tokens[:-1])]
    assert result.sampled["a"][0].token_id == (tokens[-1] + 199) % VOCAB


def test_a_bad_row_inside_a_prompt_fails_its_sequence():
    run, _, _ = runner()
    bad = ScheduledSeq("bad", 0, (1, 13, 2), (0,), (), 0, (13, 2, 9))
    good = ScheduledSeq("good", 0, (1, 2, 3), (1,), (), 0, (2, 3, 4))
    result = run.execute(StepPlan(0, (), (bad, good)))
    assert list(result.failed) == ["bad"]
    assert [e.token_id for e in result.prompt_logprobs["good"]] == [2, 3, 4]

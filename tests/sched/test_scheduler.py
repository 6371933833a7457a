"""The scheduler's decisions: order, budget, seats, sharing, limits, ends."""

from __future__ import annotations

import pytest

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.kv.prefix import Key, extend_chain, root_hash
from octavo.request import TokenLogprob
from octavo.sched.scheduler import Scheduler
from tests.sched.drive import make_core, make_request, run
from tests.toy import ToyRunner, generate_alone, next_token


def runner_of(core: object) -> ToyRunner:
    runner = core.runner  # type: ignore[attr-defined]
    assert isinstance(runner, ToyRunner)
    return runner


def test_a_long_prompt_is_chunked_and_decoding_goes_on_beside_it() -> None:
    core = make_core(num_blocks=100, max_num_batched_tokens=10)
    core.add_request(make_request("short", [1, 2], 20))
    core.step()
    core.add_request(make_request("long", list(range(40)), 2, arrival=1.0))
    for _ in range(3):
        core.step()
    for plan in runner_of(core).plans[1:]:
        assert [run.seq_id for run in plan.seqs] == ["short#0", "long#0"]
        assert [len(run.token_ids) for run in plan.seqs] == [1, 9]
        assert plan.num_tokens == 10


def test_an_old_long_prompt_leaves_a_token_for_each_younger_one() -> None:
    core = make_core(num_blocks=100, max_num_batched_tokens=10, scheduling_policy="priority")
    for i in range(3):
        core.add_request(make_request(f"young{i}", [i, 5], 30, priority=1))
    core.step()
    core.add_request(make_request("long", list(range(60)), 1, priority=0))
    core.step()
    assert [(r.seq_id, len(r.token_ids)) for r in runner_of(core).plans[-1].seqs] == [
        ("long#0", 7),
        ("young0#0", 1),
        ("young1#0", 1),
        ("young2#0", 1),
    ]


def test_first_come_first_served_and_priorities() -> None:
    for policy, expected in (("fcfs", ["a", "b", "c"]), ("priority", ["c", "a", "b"])):
        core = make_core(max_num_seqs=1, scheduling_policy=policy)
        requests = [
            make_request("a", [1], 2, priority=5, arrival=0.0),
            make_request("b", [1], 2, priority=5, arrival=1.0),
            make_request("c", [1], 2, priority=0, arrival=2.0),
        ]
        assert run(core, requests).order == expected


def test_an_urgent_request_takes_the_seat_of_another() -> None:
    core = make_core(max_num_seqs=1, scheduling_policy="priority")
    core.add_request(make_request("slow", [1, 2, 3], 10, priority=1))
    core.step()
    core.add_request(make_request("urgent", [4], 3, priority=0))
    results = run(core)
    assert results.order == ["urgent", "slow"]
    slow = generate_alone([1, 2, 3], 10)
    assert results.tokens["slow", 0] == slow[1:]  # its first token came before
    assert core.scheduler.stats.num_preemptions == 1
    assert core.scheduler.stats.num_preempted_blocks == 0


def test_the_youngest_yields_and_only_as_much_as_is_needed() -> None:
    core = make_core(num_blocks=8, max_num_batched_tokens=50)
    core.add_request(make_request("old", [1] * 8, 16))
    core.add_request(make_request("young", [2] * 14, 12, arrival=1.0))
    kv, stats = core.scheduler.kv, core.scheduler.stats
    core.step()
    while not stats.num_preemptions:
        held = len(kv.block_ids("young#0"))
        core.step()
    assert stats.num_preempted_blocks == 1
    assert len(kv.block_ids("young#0")) == held - 1
    assert kv.num_free == 0
    results = run(core)
    assert results.order == ["old", "young"]


def test_a_newcomer_leaves_room_for_what_those_who_run_need_soon() -> None:
    core = make_core(num_blocks=6, max_num_batched_tokens=50)  # of 4 tokens
    core.add_request(make_request("old", [1] * 8, 7))
    core.add_request(make_request("young", [2] * 14, 2, arrival=1.0))
    kv, stats = core.scheduler.kv, core.scheduler.stats
    core.step()
    assert [seq.seq_id for seq in core.scheduler.running] == ["old#0"]
    assert kv.num_free == 4  # room for all of its prompt; but old will need a block of it
    results = run(core)
    assert results.order == ["old", "young"]
    assert stats.num_preemptions == 0


def test_a_newcomer_need_not_wait_for_those_that_end_first() -> None:
    core = make_core(num_blocks=6, max_num_batched_tokens=50)
    core.add_request(make_request("old", [1] * 6, 2))
    core.add_request(make_request("young", [2] * 14, 2, arrival=1.0))
    core.step()
    assert len(core.scheduler.running) == 2
    run(core)
    assert core.scheduler.stats.num_preemptions == 0


def test_a_shared_prompt_is_held_once() -> None:
    core = make_core(num_blocks=100)
    prefix = list(range(32))
    run(core, [make_request("first", prefix, 1)])
    core_requests = [make_request(f"r{i}", [*prefix, 50 + i], 4) for i in range(10)]
    for request in core_requests:
        core.add_request(request)
    core.step()
    assert core.scheduler.kv.pool.num_used == 8 + 10
    assert core.scheduler.stats.prefix_cache_hits == 10 * 32


def test_choices_share_the_prompt_and_copy_its_tail() -> None:
    core = make_core(num_blocks=100)
    core.add_request(make_request("a", [1] * 10, 3, n=4))
    core.step()
    assert core.scheduler.kv.pool.num_used == 3
    core.step()
    assert core.scheduler.kv.stats.num_cow_copies == 3
    assert core.scheduler.kv.pool.num_used == 2 + 4
    assert len(run(core).finished) == 4


def test_ends() -> None:
    prompt = [1, 2, 3]
    tokens = generate_alone(prompt, 6)
    eos = (tokens[2],)
    first = tokens.index(tokens[2])
    results = run(make_core(), [make_request("a", prompt, 6, eos=eos)])
    assert results.tokens["a", 0] == tokens[: first + 1]
    assert results.finished["a", 0] == "stop"
    results = run(make_core(), [make_request("a", prompt, 6, eos=eos, ignore_eos=True)])
    assert results.tokens["a", 0] == tokens
    results = run(make_core(), [make_request("a", prompt, 6, stop_token_ids=eos)])
    assert results.outputs[-1].stop_reason == eos[0]
    results = run(make_core(max_model_len=5), [make_request("a", prompt, 2)])
    assert results.finished["a", 0] == "length"


def test_min_tokens_bans_every_end() -> None:
    core = make_core()
    run(core, [make_request("a", [1], 4, eos=(77, 73), stop_token_ids=[75], min_tokens=2)])
    banned = [s.banned_token_ids for p in runner_of(core).plans for r in p.seqs for s in r.samples]
    assert banned == [(73, 75, 77), (73, 75, 77), (), ()]


def test_history_travels_only_for_penalties() -> None:
    core = make_core()
    requests = [make_request("a", [1, 2], 2), make_request("b", [1, 2], 2, presence_penalty=1.0)]
    run(core, requests)
    history = {
        s.seq_id: s.history for p in runner_of(core).plans for r in p.seqs for s in r.samples
    }
    assert history == {"a#0": (), "b#0": (1, 2, next_token([1, 2]))}


def test_one_failure_is_nobody_elses() -> None:
    core = make_core()
    runner_of(core).broken.add("bad")
    requests = [make_request("bad", [1], 5, n=2), make_request("good", [1], 5)]
    results = run(core, requests)
    assert results.finished == {("bad", 0): "error", ("bad", 1): "error", ("good", 0): "length"}
    assert results.tokens["good", 0] == generate_alone([1], 5)


def test_abort_frees_everything_at_once() -> None:
    core = make_core(num_blocks=10, max_num_seqs=2)
    for i in range(4):
        core.add_request(make_request(f"r{i}", [i] * 6, 9, arrival=float(i), n=1 + (i == 0)))
    core.step()
    for i in (0, 3, 99):
        core.abort_request(f"r{i}")
        core.check()
    results = run(core)
    assert {key[0] for key in results.finished} == {"r1", "r2"}
    assert core.scheduler.kv.pool.num_used == 0


def test_plans_are_plain_data_and_repeatable() -> None:
    def plans() -> list[object]:
        core = make_core(num_blocks=9, max_num_batched_tokens=7)
        run(core, [make_request(f"r{i}", [i, 2, 3], 12, arrival=float(i), n=2) for i in range(4)])
        return list(runner_of(core).plans)

    assert plans() == plans()


def test_a_pool_too_small_for_one_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="max_model_len 33 needs 3 blocks, the pool has 2"):
        Scheduler(SchedulerConfig(), KVManager(2, 16), max_model_len=33)


def test_who_needs_a_prefix_that_is_being_computed_waits_for_it() -> None:
    core = make_core(num_blocks=100, max_num_batched_tokens=500)
    prefix = list(range(32))
    for i in range(5):
        core.add_request(make_request(f"r{i}", [*prefix, 50 + i], 4, arrival=float(i)))
    core.add_request(make_request("other", [7] * 9, 4, arrival=9.0))  # does not wait
    core.step()
    core.step()
    first, second = runner_of(core).plans
    assert [(r.seq_id, len(r.token_ids)) for r in first.seqs] == [("r0#0", 33), ("other#0", 9)]
    assert [len(r.token_ids) for r in second.seqs] == [1] * 6
    assert core.scheduler.kv.pool.num_used == 8 + 5 + 3
    results = run(core)
    assert len(results.finished) == 6


def test_a_promise_ends_with_the_one_who_made_it() -> None:
    core = make_core(num_blocks=100, max_num_batched_tokens=10)
    prefix = list(range(32))
    core.add_request(make_request("a", [*prefix, 50], 4))
    core.add_request(make_request("b", [*prefix, 51], 4, arrival=1.0))
    core.step()
    core.abort_request("a")
    results = run(core)
    assert results.tokens["b", 0] == generate_alone([*prefix, 51], 4)
    assert core.scheduler.stats.prefix_cache_hits == 8  # what a had computed before


def test_who_was_preempted_is_not_waited_for() -> None:
    core = make_core(100, max_num_seqs=1, max_num_batched_tokens=8, scheduling_policy="priority")
    prefix = list(range(40))
    core.add_request(make_request("maker", [*prefix, 50], 2, priority=2))
    core.step()
    core.add_request(make_request("second", [*prefix, 51], 2, priority=1))
    core.step()  # the second waits for what the first computes
    assert [r.seq_id for r in runner_of(core).plans[-1].seqs] == ["maker#0"]
    core.add_request(make_request("urgent", [9, 9, 9], 3, priority=0))
    run(core)
    ran = [run.seq_id for plan in runner_of(core).plans for run in plan.seqs]
    assert "maker#0" not in ran[ran.index("urgent#0") : ran.index("second#0")]


def test_nobody_runs_on_blocks_that_are_on_their_way() -> None:
    core = make_core(20, 4, num_disk_blocks=9)
    kv, memory, prompt = core.scheduler.kv, runner_of(core).memory, list(range(12))
    chain: list[Key] = []
    extend_chain(chain, root_hash(), prompt, 2, 4)
    memory.disk = {i: (key, list(prompt[4 * i : 4 * i + 4])) for i, key in enumerate(chain)}
    memory.delay = 2
    assert kv.memory.restore(enumerate(chain)) == 2
    kv.match("other", prompt)
    assert kv.recall("other", prompt, 2) == 8
    core.add_request(make_request("a", prompt, 1, prompt_logprobs=0))
    core.scheduler.sequences["a#0"].prompt_logprobs = [None] + [TokenLogprob(0, 0.0)] * 8
    core.step()  # it had come so far before a preemption: it may match so many tokens
    assert kv.is_in_flight("a#0")
    assert all(not plan.seqs for plan in runner_of(core).plans)
    assert run(core).tokens["a", 0] == generate_alone(prompt, 1)

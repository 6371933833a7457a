"""Beam search gives what the naive one gives, whatever memory and company do to its beams."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from octavo.request import Request
from tests.sched.drive import Results, make_core, make_request, run
from tests.sched.naive_beams import Slot, beam_search
from tests.toy import generate_alone, next_scores

VOCAB = 23
STEMS = [[(7 * s + i * i) % 11 for i in range(20)] for s in range(3)]
EOS = (3,)


def expected(request: Request, window: int | None = None) -> list[Slot]:
    params = request.params
    return beam_search(
        lambda tokens: next_scores(tokens, VOCAB, window),
        list(request.prompt_token_ids),
        width=params.num_seqs,
        max_tokens=params.max_tokens or 0,
        ends={*params.stop_token_ids, *request.eos_token_ids},
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
    )


def beams(
    request_id: str, prompt: list[int], max_tokens: int = 8, width: int = 3, **params: object
) -> Request:
    settings = {"n": width, "use_beam_search": True, "eos": EOS, **params}
    return make_request(request_id, prompt, max_tokens, **settings)


def check(results: Results, request: Request, window: int | None = None) -> None:
    best = expected(request, window)
    outputs = [o for o in results.outputs if o.request_id == request.request_id]
    assert [o.index for o in outputs] == list(range(request.params.n))
    for output, slot in zip(outputs, best, strict=False):
        assert list(output.token_ids) == slot.tokens
        assert [entry.token_id for entry in output.logprobs] == slot.tokens
        score = sum(e.logprob for e in output.logprobs)
        assert score / len(slot.tokens) ** request.params.length_penalty == pytest.approx(
            slot.score
        )
        ends = slot.tokens[-1] in (*EOS, *request.params.stop_token_ids)
        assert output.finish_reason == ("stop" if ends else "length")
        own = slot.tokens[-1] if slot.tokens[-1] in request.params.stop_token_ids else None
        assert output.stop_reason == own


ASKED = st.lists(
    st.fixed_dictionaries(
        {
            "stem": st.integers(0, 2),
            "length": st.integers(1, 17),
            "max_tokens": st.integers(1, 10),
            "width": st.integers(1, 6),
            "drop": st.integers(0, 3),  # how many fewer are given back
            "is_beam": st.sampled_from([True, True, False]),
            "length_penalty": st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.6]),
            "early_stopping": st.sampled_from([False, True, "never"]),
            "stop_token_ids": st.sampled_from([(), (5,), (1, 9)]),
            "priority": st.integers(-1, 1),
        }
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=250, deadline=None)
@given(
    ASKED,
    st.integers(7, 40),
    st.sampled_from([1, 2, 3, 7, 100]),
    st.integers(6, 9),
    st.booleans(),
    st.sampled_from(["fcfs", "priority"]),
    st.booleans(),
    st.sampled_from([(0, 0), (6, 0), (0, 9), (4, 7), (60, 200)]),
    st.sampled_from(["blocks", "sequence", "recompute"]),
    st.sampled_from([None, None, 7]),
)
def test_beams_do_not_depend_on_memory_or_schedule(
    asked: list[dict[str, object]],
    num_blocks: int,
    budget: int,
    seats: int,
    caching: bool,
    policy: str,
    match_tokens: bool,
    tiers: tuple[int, int],
    preemption_mode: str,
    window: int | None,
) -> None:
    host, disk = tiers if caching else (0, 0)
    core = make_core(
        num_blocks,
        vocab=VOCAB,
        match_tokens=match_tokens,
        num_host_blocks=host,
        num_disk_blocks=disk,
        preemption_mode=preemption_mode,
        prefix_caching=caching,
        max_num_batched_tokens=budget,
        max_num_seqs=seats,
        scheduling_policy=policy,
        window=window,
    )
    requests = []
    for i, each in enumerate(asked):
        prompt = STEMS[each.pop("stem")][: each.pop("length")]
        width, drop, is_beam = each["width"], each.pop("drop"), each.pop("is_beam")
        if is_beam:
            each |= {"n": max(1, width - drop), "beam_width": width}
            requests.append(beams(f"r{i}", prompt, arrival=float(i), **each))
        else:
            max_tokens, priority = each["max_tokens"], each["priority"]
            requests.append(
                make_request(f"r{i}", prompt, max_tokens, priority, n=width, arrival=float(i))
            )
    results = run(core, requests, 20000)
    for request in requests:
        if request.params.use_beam_search:
            check(results, request, window)
        else:
            for index in range(request.params.n):
                tokens = results.tokens[request.request_id, index]
                prompt = list(request.prompt_token_ids)
                num = request.params.max_tokens or 0
                assert tokens == generate_alone(prompt, num, index, VOCAB, window)
    assert core.scheduler.kv.pool.num_used == 0
    assert not core.scheduler.sequences


def test_a_dropped_beam_returns_its_blocks_at_once_and_a_shared_prompt_lies_there_once() -> None:
    prompt, width = STEMS[0][:16], 4
    core = make_core(200, vocab=VOCAB, prefix_caching=False)
    core.add_request(beams("a", prompt, 24, width, ignore_eos=True))
    kv, most = core.scheduler.kv, 0
    while core.has_work:
        core.step()
        core.check()
        group = list(core.scheduler.sequences.values())
        assert len(group) in (0, 1, width)
        # What is in use is what the live beams have in common and apart, and nothing else.
        prefixes = {
            tuple(seq.tokens[: min(end, seq.num_computed)])
            for seq in group
            for end in range(4, seq.num_computed + 4, 4)
        }
        assert kv.pool.num_used <= len(prefixes) + (width if group else 0)
        most = max(most, kv.pool.num_used)
    assert 10 < most < width * 10
    assert kv.pool.num_used == 0


def test_prompt_work_of_many_choices_is_that_of_one() -> None:
    def computed(**params: object) -> int:
        core = make_core(1000, max_num_batched_tokens=256, prefix_caching=False)
        prompt = [(i * i) % 47 for i in range(1024)]
        run(core, [make_request("a", prompt, 1, **params)])
        return core.scheduler.stats.computed_tokens

    assert computed() == 1024
    assert computed(n=4) == computed(best_of=4) == 1024
    assert computed(n=4, use_beam_search=True) == 1024


def test_an_aborted_search_leaves_nothing() -> None:
    core = make_core(60, vocab=VOCAB)
    core.add_request(beams("a", [1, 2, 3], 20))
    core.add_request(beams("b", [1, 2, 4], 6, arrival=1.0))
    for _ in range(4):
        core.step()
    core.abort_request("a")
    core.check()
    request = beams("b", [1, 2, 4], 6)
    check(run(core), request)
    assert core.scheduler.kv.pool.num_used == 0


def test_a_search_that_fails_ends_all_its_choices_and_no_others() -> None:
    core = make_core(60, vocab=VOCAB)
    core.runner.broken.add("a")
    asked = [beams("a", [1, 2, 3], 20, 4, n=2), beams("b", [1, 2, 4], 6, arrival=1.0)]
    results = run(core, asked)
    assert results.finished["a", 0] == results.finished["a", 1] == "error"
    check(results, asked[1])
    assert core.scheduler.kv.pool.num_used == 0


def test_prompt_logprobs_come_with_the_best_output() -> None:
    plain = run(make_core(60, vocab=VOCAB), [make_request("a", [1, 2, 3], 2, prompt_logprobs=1)])
    core = make_core(60, vocab=VOCAB, max_num_batched_tokens=2)
    outputs = run(core, [beams("a", [1, 2, 3], 9, prompt_logprobs=1)]).outputs
    assert outputs[0].prompt_logprobs == plain.outputs[0].prompt_logprobs != None  # noqa: E711
    assert [o.prompt_logprobs for o in outputs[1:]] == [None, None]

"""Guesses change how many steps it takes, never the tokens."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from octavo.sched.speculation import IDLE_AFTER, PromptLookup
from tests.sched.drive import make_core, make_request, run
from tests.toy import ToyRunner, generate_alone

CIRCLE = [1, 2, 3, 4, 5, 6, 7] * 3


def test_what_followed_before_is_the_guess() -> None:
    lookup = PromptLookup()
    assert lookup.guess([1, 2, 3, 4, 9, 1, 2, 3], 2, 1) == (4, 9)
    assert lookup.guess([1, 2, 3, 4, 9, 1, 2, 3, 8], 2, 1) == ()
    assert PromptLookup().guess([1, 2, 9, 5, 2, 9], 1, 1) == (5,)
    assert PromptLookup().guess([4, 5, 4, 5], 3, 1) == (4, 5, 4)  # round in a circle
    assert PromptLookup().guess([1, 9, 9, 1, 8, 9, 9], 1, 1) == (1,)  # the longest match counts


def test_guesses_are_made_where_they_pay() -> None:
    lookup = PromptLookup()
    few = lookup.num_worthwhile(3, 1)
    assert few >= 2
    assert lookup.num_worthwhile(3, 64) < few
    assert lookup.num_worthwhile(1, 1) < lookup.num_worthwhile(6, 1)
    assert lookup.guess([1, 2, 3, 1, 2], 9, 1)
    for _ in range(30):
        lookup.learn(9, 0)
    assert lookup.num_worthwhile(2, 1) > 10
    for _ in range(80):
        lookup.learn(0, 3)  # after a match of two tokens
    assert lookup.num_worthwhile(2, 1) == 0
    assert lookup.num_worthwhile(6, 1) > 0  # longer ones are judged apart
    long = [3, 1, 2, 4, 1, 2] + [9, 8] * 25 + [7, 1, 2]
    assert len(lookup.guess(long, 9, 1)) == 1  # once in a while it tries again
    assert lookup.guess([*long, 6, 1, 2], 9, 1) == ()


class Circle(ToyRunner):
    """Draws what stood seven tokens earlier: every guess is right."""

    def execute(self, plan):  # type: ignore[no-untyped-def]
        result = super().execute(plan)
        for each in plan.seqs:
            known = self.memory.read(each.block_ids, each.start + len(each.token_ids))
            drawn = result.sampled.get(each.seq_id, [])
            for i, sample in enumerate(each.samples):
                token = known[len(known) + sample.row + 1 - 7]
                drawn[i] = type(drawn[i])(token, 0.0)
        return result


def test_right_guesses_save_steps_and_rooms_are_given_back() -> None:
    core = make_core(num_blocks=50, speculative="ngram")
    core.runner = Circle(50, 4)
    results = run(core, [make_request("a", CIRCLE, 60)])
    assert results.tokens["a", 0] == (CIRCLE * 4)[:60]
    stats = core.scheduler.stats
    assert stats.num_steps < 20
    assert stats.num_accepted_guesses > 40
    assert stats.generation_tokens == 60


def test_an_end_among_the_guesses_is_the_end() -> None:
    core = make_core(num_blocks=50, speculative="ngram")
    core.runner = Circle(50, 4)
    results = run(core, [make_request("a", CIRCLE, 60, eos=(6,))])
    assert results.tokens["a", 0] == CIRCLE[:6]
    assert results.finished["a", 0] == "stop"


def test_steps_are_taken_together_only_while_nothing_is_guessed() -> None:
    core = make_core(num_blocks=100, speculative="ngram", steps=3, vocab=2)
    results = run(core, [make_request("x", [0, 1] * 3, 100)])
    assert results.tokens["x", 0] == generate_alone([0, 1] * 3, 100, vocab=2)
    plans = core.runner.plans  # type: ignore[attr-defined]
    tries = [plan for plan in plans if any(run.num_guesses for run in plan.seqs)]
    assert tries
    assert all(plan.num_steps == 1 for plan in tries)
    last_try = 0
    for plan in plans:
        (run_,) = plan.seqs
        if run_.num_guesses:
            last_try = run_.start + 1
        elif plan.num_steps > 1:
            assert run_.start + 1 - last_try >= IDLE_AFTER


REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=18), st.integers(1, 30),
              st.integers(1, 2)),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(REQUESTS, st.integers(13, 40), st.sampled_from([2, 5, 100]), st.sampled_from([1, 3]))
def test_tokens_are_those_without_guesses(
    asked: list[tuple[list[int], int, int]], num_blocks: int, budget: int, steps: int
) -> None:
    # Two tokens only: half of all guesses are right.
    core = make_core(
        num_blocks, max_num_batched_tokens=budget, speculative="ngram", vocab=2, steps=steps
    )
    requests = [
        make_request(f"r{i}", prompt, new, n=n, arrival=float(i), presence_penalty=0.5 * (i % 2))
        for i, (prompt, new, n) in enumerate(asked)
    ]
    results = run(core, requests)
    for i, (prompt, new, n) in enumerate(asked):
        for index in range(n):
            assert results.tokens[f"r{i}", index] == generate_alone(prompt, new, index, vocab=2)
    for plan in core.runner.plans:  # type: ignore[attr-defined]
        for each in plan.seqs:
            end = each.start + len(each.token_ids) + plan.num_steps - 1
            assert len(each.block_ids) == -(-end // 4)


def test_a_stop_string_among_several_tokens_cuts_there() -> None:
    from octavo.engine.sync import SyncEngine
    from octavo.request import SamplingParams
    from tests.engine.letters import Letters
    from tests.engine.test_engines import LIMITS

    core = make_core(num_blocks=50, max_model_len=200, speculative="ngram")
    core.runner = Circle(50, 4)
    engine = SyncEngine(core, Letters(), LIMITS)  # type: ignore[arg-type]
    params = SamplingParams(max_tokens=60, stop=["ef"], logprobs=0, min_tokens=8)
    deltas = [delta for _, delta in engine.generate([CIRCLE], [params])]
    text = "".join(d.text for d in deltas)
    assert text == "bcdefghbcd"
    num_tokens = sum(len(d.token_ids) for d in deltas)
    assert num_tokens == sum(len(d.logprobs) for d in deltas) == len("bcdefghbcdef")

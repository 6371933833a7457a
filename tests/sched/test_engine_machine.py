"""Engine, scheduler, KV manager and toy memory while everything happens at once.

Requests of two tenants come and go, with choices, beams, log-probabilities of prompts, priorities; memory
is short; disk reads are slow or find nothing, disk writes fail, steps fail, the engine restarts.
Each request that ends by itself must give the tokens of the cold, lone run, and all must end.
"""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from octavo.engine.core import EngineCore
from octavo.request import Request
from tests.sched.drive import Results, make_core, make_request
from tests.sched.naive_beams import beam_search
from tests.toy import TAG, ToyRunner, generate_alone, next_scores

BLOCK, MAX_LEN = 4, 32
STEMS = [[(7 * s + i * i) % 11 for i in range(MAX_LEN)] for s in range(3)]
VOCAB = 12


BEGIN = {
    "num_blocks": [8, 8, 9, 11, 16],  # 8 are just enough for the longest request
    "max_num_batched_tokens": [1, 3, 7, 100],
    "attention_weight": [0.0, 0.1],
    "steps": [1, 3],
    "tiers": [(0, 0), (3, 0), (0, 5), (1, 1), (4, 7), (30, 60)],
    "prefix_caching": [True, True, True, False],
    "max_num_seqs": [3, 6],
    "match_tokens": [True, False],
    "window": [None, None, 3, 6, 9],
    "preemption_mode": ["blocks", "sequence", "recompute"],
    "scheduling_policy": ["fcfs", "priority"],
    "speculative": [None, "ngram"],
}
VERBS = ["ask"] * 5 + ["steps"] * 6 + ["abort"] + ["trouble"] * 2
TROUBLES = (
    ["move", "execute"] + ["save"] * 2 + ["slow"] * 3 + ["full"] * 2 + ["damaged"] * 4 + ["restart"]
)
NUMBER = st.integers(0, 2**20)


class EngineMachine(RuleBasedStateMachine):
    core: EngineCore

    @initialize(options=st.fixed_dictionaries({k: st.sampled_from(v) for k, v in BEGIN.items()}))
    def begin(self, options: dict[str, Any]) -> None:
        self.options = dict(options)
        host, disk = self.options.pop("tiers")
        if self.options["prefix_caching"]:
            self.options |= {"num_host_blocks": host, "num_disk_blocks": disk}
        self.options |= {"vocab": VOCAB, "max_model_len": MAX_LEN}
        self.window = self.options["window"]
        self.count = 0
        self.start()

    @rule(verb=st.sampled_from(VERBS), number=NUMBER)
    def do(self, verb: str, number: int) -> None:
        """One verb. A single rule: hypothesis would not draw many in the proportions wanted."""
        getattr(self, verb)(random.Random(number))

    def start(self) -> None:
        self.core = make_core(**self.options)
        self.runner.truth = lambda seq_id: self.core.scheduler.sequences[seq_id].tokens
        self.requests: dict[str, Request] = {}
        self.gone: set[str] = set()  # aborted, or a step of it failed
        self.results = Results()

    @property
    def runner(self) -> ToyRunner:
        assert isinstance(self.core.runner, ToyRunner)
        return self.core.runner

    # -- users -------------------------------------------------------------------------------------

    def ask(self, rng: random.Random) -> None:
        self.count += 1
        length, salt = rng.randint(1, MAX_LEN - 1), rng.choice([None, None, "a", ""])
        is_search = rng.random() < 0.25
        request = make_request(
            f"r{self.count}",
            rng.choice(STEMS)[:length],
            min(rng.randrange(is_search, 13), MAX_LEN - length),
            n=rng.choice([1, 1, 1, 2, 3]),
            priority=rng.randint(-1, 1),
            arrival=float(self.count),
            cache_salt=salt,
            prompt_logprobs=rng.choice([None, None, None, 1]),
            use_beam_search=is_search,
            beam_width=3 if is_search else None,
            stop_token_ids=(5,) if is_search else (),
        )
        self.requests[request.request_id] = request
        self.runner.tags[request.request_id] = TAG * [None, "a", ""].index(salt)
        self.core.add_request(request)

    def abort(self, rng: random.Random) -> None:
        if self.requests:
            request_id = rng.choice(sorted(self.requests))
            self.core.abort_request(request_id)
            self.gone.add(request_id)
            self.core.check()

    def steps(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 12)):
            self.step()

    def step(self) -> None:
        outputs = self.core.step()
        self.core.check()
        self.results.add(outputs)
        for output in outputs:
            num_prompt = len(self.requests[output.request_id].prompt_token_ids)
            assert 0 <= output.num_cached_tokens < num_prompt
            if output.finish_reason == "error":
                self.gone.add(output.request_id)

    # -- troubles ----------------------------------------------------------------------------------

    def trouble(self, rng: random.Random) -> None:
        memory, kind = self.runner.memory, rng.choice(TROUBLES)
        if kind in ("move", "execute"):
            self.a_step_fails(kind)
        elif kind == "save":
            self.core.save(rng.randrange(9))
        elif kind == "slow":
            memory.delay = rng.randrange(4)
        elif kind == "full":
            memory.broken_slots = set(range(rng.randrange(5)))
        elif kind == "damaged" and memory.disk:
            del memory.disk[rng.choice(sorted(memory.disk))]
        elif kind == "restart" and self.options.get("num_disk_blocks"):
            self.restart()
        self.core.check()

    def a_step_fails(self, where: str) -> None:
        whole = getattr(self.runner, where)

        def fail(*args: Any) -> Any:
            setattr(self.runner, where, whole)
            raise RuntimeError("on purpose")

        setattr(self.runner, where, fail)
        self.step()
        setattr(self.runner, where, whole)

    def restart(self) -> None:
        disk = self.runner.memory.disk
        self.start()
        self.runner.memory.disk = disk
        entries = [(slot, key) for slot, (key, _) in sorted(disk.items())]
        num = self.core.scheduler.kv.memory.restore(entries)
        assert num == len({key.hash for _, key in entries})

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.run_to_the_end()
        for request_id in set(self.requests) - self.gone:
            self.compare(self.requests[request_id])
        memory = self.core.scheduler.kv.memory
        while memory.num_in_flight:  # of requests that were aborted
            self.step()
        assert memory.pool.num_used == 0

    def run_to_the_end(self) -> None:
        stats, num_idle = self.core.scheduler.stats, 0
        for _ in range(20_000):
            if not self.core.has_work:
                return
            before = stats.computed_tokens
            self.step()
            num_idle = num_idle + 1 if stats.computed_tokens == before else 0
            assert num_idle < 30, "nobody gets on"
        raise AssertionError("they compute and compute")

    def compare(self, request: Request) -> None:
        prompt = list(request.prompt_token_ids)
        for index, expected in enumerate(self.expected(request)):
            assert self.results.tokens[request.request_id, index] == expected
        if request.params.prompt_logprobs is not None:
            of = [o for o in self.results.outputs if o.request_id == request.request_id]
            (entries,) = [o.prompt_logprobs for o in of if o.prompt_logprobs is not None]
            assert [entry and entry.token_id for entry in entries] == [None, *prompt[1:]]

    def expected(self, request: Request) -> list[list[int]]:
        prompt, params = list(request.prompt_token_ids), request.params
        num = params.max_tokens or 0
        if not params.use_beam_search:
            return [generate_alone(prompt, num, i, VOCAB, self.window) for i in range(params.n)]
        best = beam_search(
            lambda tokens: next_scores(tokens, VOCAB, self.window),
            prompt,
            width=params.num_seqs,
            max_tokens=num,
            ends={*params.stop_token_ids},
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
        )
        return [slot.tokens for slot in best[: params.n]]


EngineMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestEngine = EngineMachine.TestCase


@pytest.mark.parametrize("seed", range(20))
def test_random_walks(seed: int) -> None:
    for part in range(10):
        rng, machine = random.Random(10 * seed + part), EngineMachine()
        machine.begin({name: rng.choice(values) for name, values in BEGIN.items()})
        for _ in range(60):
            machine.do(rng.choice(VERBS), rng.randrange(2**20))
        machine.teardown()

"""Engine, scheduler, KV manager and toy memory while everything happens at once.

Requests of two tenants come and go, with choices, log-probabilities of prompts, priorities; memory
is short; disk reads are slow or find nothing, disk writes fail, steps fail, the engine restarts.
Each request that ends by itself must give the tokens of the cold, lone run, and all must end.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from octavo.engine.core import EngineCore
from octavo.request import Request
from tests.sched.drive import Results, make_core, make_request
from tests.toy import TAG, ToyRunner, generate_alone

BLOCK, MAX_LEN = 4, 32
STEMS = [[(7 * s + i * i) % 11 for i in range(MAX_LEN)] for s in range(3)]
WHICH = st.integers(0, 1000)
VOCAB = 12


class EngineMachine(RuleBasedStateMachine):
    core: EngineCore

    @initialize(
        num_blocks=st.sampled_from([8, 8, 9, 11, 16]),  # 8 are just enough for the longest request
        budget=st.sampled_from([1, 3, 7, 100]),
        tiers=st.sampled_from([(0, 0), (3, 0), (0, 5), (1, 1), (4, 7), (30, 60)]),
        caching=st.sampled_from([True, True, True, False]),
        options=st.fixed_dictionaries(
            {
                "max_num_seqs": st.integers(3, 6),
                "match_tokens": st.booleans(),
                "window": st.sampled_from([None, None, 3, 6, 9]),
                "preemption_mode": st.sampled_from(["blocks", "sequence", "recompute"]),
                "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
                "speculative": st.sampled_from([None, "ngram"]),
            }
        ),
    )
    def begin(
        self,
        num_blocks: int,
        budget: int,
        tiers: tuple[int, int],
        caching: bool,
        options: dict[str, Any],
    ) -> None:
        host, disk = tiers if caching else (0, 0)
        self.window = options["window"]
        self.options = {
            "num_blocks": num_blocks,
            "max_num_batched_tokens": budget,
            "prefix_caching": caching,
            "num_host_blocks": host,
            "num_disk_blocks": disk,
            "vocab": VOCAB,
            "max_model_len": MAX_LEN,
            **options,
        }
        self.count = 0
        self.start()

    def start(self) -> None:
        self.core = make_core(num_blocks=self.options["num_blocks"], **self.rest())
        self.runner.truth = lambda seq_id: self.core.scheduler.sequences[seq_id].tokens
        self.requests: dict[str, Request] = {}
        self.gone: set[str] = set()  # aborted, or a step of it failed
        self.results = Results()

    def rest(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name != "num_blocks"}

    @property
    def runner(self) -> ToyRunner:
        assert isinstance(self.core.runner, ToyRunner)
        return self.core.runner

    # -- users -------------------------------------------------------------------------------------

    @rule(
        stem=st.integers(0, 2),
        length=st.integers(1, MAX_LEN - 1) | st.integers(20, MAX_LEN - 1),
        new=st.integers(0, 12),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(-1, 1),
        salt=st.sampled_from([None, None, "a", ""]),
        prompt_logprobs=st.sampled_from([None, None, None, 1]),
    )
    def ask(
        self,
        stem: int,
        length: int,
        new: int,
        n: int,
        priority: int,
        salt: str | None,
        prompt_logprobs: int | None,
    ) -> None:
        self.count += 1
        request = make_request(
            f"r{self.count}",
            STEMS[stem][:length],
            min(new, MAX_LEN - length),
            n=n,
            priority=priority,
            arrival=float(self.count),
            cache_salt=salt,
            prompt_logprobs=prompt_logprobs,
        )
        self.requests[request.request_id] = request
        self.runner.tags[request.request_id] = TAG * [None, "a", ""].index(salt)
        self.core.add_request(request)

    @precondition(lambda self: self.requests)
    @rule(which=WHICH)
    def abort(self, which: int) -> None:
        request_id = sorted(self.requests)[which % len(self.requests)]
        self.core.abort_request(request_id)
        self.gone.add(request_id)
        self.core.check()

    @rule(num=st.integers(1, 6))
    def steps(self, num: int) -> None:
        for _ in range(num):
            self.step()

    @rule(num=st.integers(5, 20))
    def many_steps(self, num: int) -> None:
        self.steps(num)

    def step(self) -> None:
        outputs = self.core.step()
        self.core.check()
        self.results.add(outputs)
        for output in outputs:
            num_prompt = len(self.requests[output.request_id].prompt_token_ids)
            assert 0 <= output.num_cached_tokens < num_prompt
            if output.finish_reason == "error":
                self.gone.add(output.request_id)

    # -- troubles: one rule, so that they do not crowd out the rest -------------------------------

    @rule(
        kind=st.sampled_from(
            [
                "move fails",
                "execute fails",
                "save",
                "save",
                "slow",
                "slow",
                "full",
                "damaged",
                "restart",
            ]
        ),
        num=st.integers(0, 9),
    )
    def trouble(self, kind: str, num: int) -> None:
        memory = self.runner.memory
        if kind.endswith("fails"):
            self.a_step_fails(kind.split()[0])
        elif kind == "save":
            self.core.save(num)
        elif kind == "slow":
            memory.delay = num % 4
        elif kind == "full":
            memory.broken_slots = set(range(num % 5))
        elif kind == "damaged" and memory.disk:
            del memory.disk[sorted(memory.disk)[num % len(memory.disk)]]
        elif kind == "restart" and self.options["num_disk_blocks"]:
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
        prompt, num = list(request.prompt_token_ids), request.params.max_tokens or 0
        for index in range(request.params.n):
            expected = generate_alone(prompt, num, index, VOCAB, self.window)
            assert self.results.tokens[request.request_id, index] == expected
        if request.params.prompt_logprobs is not None:
            of = [o for o in self.results.outputs if o.request_id == request.request_id]
            (entries,) = [o.prompt_logprobs for o in of if o.prompt_logprobs is not None]
            assert [entry and entry.token_id for entry in entries] == [None, *prompt[1:]]


EngineMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestEngine = EngineMachine.TestCase

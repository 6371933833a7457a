"""The scheduler: which tokens of which sequences are computed next. Two verbs, no phases.

    plan    = schedule(now)           which runs of tokens, in which blocks
    outputs = update(plan, result)    what came of it

Sequences are walked in policy order. Each asks for its pending tokens (a prompt chunk and a decode
step are the same thing) and for the blocks to hold them. Who finds no block takes it from the last
in the order, off that one's tail, only as many as it lacks; the loser keeps the rest and comes back
through the same door as a new request: match what is still there, bring back what slower tiers
hold, compute only what is missing. The first in the order can take from everyone, so it always gets
on. Who waits for the disk, or for a prefix that another is computing, lets the next go first.
"""

from __future__ import annotations

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.request import Request
from octavo.sched.beam import Beam, BeamGroup
from octavo.sched.branches import settled_sibling
from octavo.sched.budget import StepBudget
from octavo.sched.headroom import blocks_needed_soon
from octavo.sched.outputs import SeqOutput
from octavo.sched.pace import Pace, take_steps
from octavo.sched.plan import ScheduledSeq, StepPlan, StepResult
from octavo.sched.policy import POLICIES, PREEMPTION_MODES
from octavo.sched.promotion import Promotion
from octavo.sched.queues import Queue, by_key
from octavo.sched.sequence import Sequence, seq_id_of
from octavo.sched.speculation import PromptLookup
from octavo.sched.stats import SchedulerStats
from octavo.sched.update import Booking


class Scheduler:
    """Owns the sequences and, through `kv`, their blocks.

    Reads no clock and draws nothing at random.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVManager,
        max_model_len: int,
        sliding_window: int | None = None,
        attention_weight: float = 0.0,
    ) -> None:
        if kv.blocks_for(max_model_len) > kv.pool.num_blocks:
            raise ValueError(
                f"max_model_len {max_model_len} needs {kv.blocks_for(max_model_len)} blocks, "
                f"the pool has {kv.pool.num_blocks}"
            )
        self.config = config
        self.kv = kv
        self.max_model_len = max_model_len
        self.sliding_window = sliding_window
        self.attention_weight = attention_weight
        self.promotion = Promotion(kv.block_size)
        self.pace = Pace(config.num_scheduler_steps)
        self.stats = SchedulerStats()
        self.sequences: dict[str, Sequence] = {}
        self.running = Queue()  # has a seat; computes in every step
        self.waiting = Queue()  # new, or preempted
        self._holders = Queue()  # waiting, but still holding blocks
        self.admitted: list[Sequence] = []  # those that got their seat in the last `schedule`
        self._policy = POLICIES[config.scheduling_policy]
        self._take_from = PREEMPTION_MODES[config.preemption_mode]
        self._num_requests = 0
        self._num_seats = 0
        self._num_plans = 0

    # -- requests ----------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. Its limits were checked at the door (engine/limits.py)."""
        params = request.params
        if params.max_tokens is None:
            raise ValueError(f"{request.request_id}: expected a settled max_tokens, got None")
        max_len = min(len(request.prompt_token_ids) + params.max_tokens, self.max_model_len)
        eos_token_ids = () if params.ignore_eos else request.eos_token_ids
        self._num_requests += 1
        key = (*self._policy(request), self._num_requests, 0)
        seq = Sequence(
            seq_id=seq_id_of(request.request_id, 0),
            request=request,
            index=0,
            key=key,
            tokens=list(request.prompt_token_ids),
            max_len=max_len,
            end_token_ids=params.stop_token_ids + eos_token_ids,
            forks=tuple(range(1, params.num_seqs)),
        )
        if params.use_beam_search:
            group = BeamGroup(request, max_len - seq.num_prompt, seq.end_token_ids, [seq])
            seq.beam = Beam(group)
        elif self.config.speculative == "ngram":
            seq.lookup = PromptLookup()
        if seq.seq_id in self.sequences:
            raise ValueError(f"request {request.request_id} is there already")
        self.sequences[seq.seq_id] = seq
        self.waiting.add(seq)
        self.stats.prompt_tokens += seq.num_prompt

    def fork(self, seq: Sequence, index: int) -> Sequence:
        """Choice (or beam) `index`, at the point where `seq` is; it runs too if there is a seat."""
        child = seq.fork(index)
        self.kv.fork(seq.seq_id, child.seq_id)
        self.sequences[child.seq_id] = child
        child.is_running = seq.is_running and self._has_seats(child)
        if child.is_running:
            self.running.add(child)
            self._num_seats += child.num_seats
        else:
            self.waiting.add(child)
            self._holders.add(child)
        return child

    def take_forks(self, seq: Sequence) -> tuple[int, ...]:
        """The choices to be forked from a running `seq`; their seats are free from now on."""
        forks, seq.forks = seq.forks, ()
        self._num_seats -= len(forks)
        return forks

    def finish(self, seq: Sequence, is_sound: bool = True) -> None:
        """Drop a sequence wherever it stands; its blocks stay findable.

        `is_sound`: False if its last step failed, its unfinished block is not to be trusted then.
        """
        if seq.is_running:
            self._leave(seq)
        else:
            self.waiting.remove(seq)
            self._holders.discard(seq)
        if self.kv.holds(seq.seq_id):
            self.kv.free(seq.seq_id, keep_tail=is_sound)
        del self.sequences[seq.seq_id]

    @property
    def has_work(self) -> bool:
        """True if a step would compute or move something, or has to wait for the disk."""
        return bool(self.sequences) or self.kv.memory.has_moves

    # -- the two verbs -----------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan:
        """The next step's plan. `now`: seconds, for policies that age (none does yet)."""
        budget = StepBudget(
            self.config.max_num_batched_tokens, self.attention_weight, self.sliding_window
        )
        scheduled: list[ScheduledSeq] = []
        admitting = True
        self.admitted.clear()
        for seq in self._in_order():
            if seq.beam is not None and seq.beam.is_settled:
                continue
            if seq.is_running:
                run = self._run(seq, budget, max(1, self._share(seq, budget.left)))
            elif admitting and (share := self._share(seq, budget.left)) > 0:
                if self.kv.is_in_flight(seq.seq_id):
                    continue
                self._match(seq)
                if self._awaits(seq):
                    continue
                admitting = self._may_enter(seq)
                if not admitting or self._recall(seq):
                    continue
                run = self._admit(seq, budget, share)
                admitting = run is not None
            else:
                continue
            if run is not None:
                scheduled.append(run)
                budget.spend(run.start, len(run.token_ids))
                if budget.left == 0:
                    break
        self._num_plans += 1
        num_steps = 1
        if not self.waiting:
            seqs = [self.sequences[run.seq_id] for run in scheduled]
            num_steps = take_steps(self.pace.num_steps, self.kv, seqs, scheduled)
        return StepPlan(self._num_plans, self.kv.take_moves(), tuple(scheduled), num_steps)

    def update(self, plan: StepPlan, result: StepResult) -> list[SeqOutput]:
        """Book what the tensor plane did; returns each choice's new tokens."""
        return Booking(self, plan, result).run()

    # -- walking -----------------------------------------------------------------------------------

    def _in_order(self) -> list[Sequence]:
        # Copies: the walk moves sequences between the queues (a victim is met later, waiting).
        if not self.waiting:
            return list(self.running)
        return sorted((*self.running, *self.waiting), key=by_key)  # two sorted runs: one merge

    def _share(self, seq: Sequence, budget: int) -> int:
        """Tokens of the budget that `seq` may have at most."""
        if seq.is_running and seq.lookup is None and seq.num_pending == 1:
            return 1
        # A long prompt leaves a token for each running sequence after it: nobody stalls.
        share = budget - self.running.num_after(seq)
        # Beams that are settled run no further without those that wait: these get on in any case.
        return share if seq.beam is None else max(1, share)

    def _run(self, seq: Sequence, budget: StepBudget, share: int) -> ScheduledSeq | None:
        """Give a running sequence its next tokens and their blocks; None if it had to give way.

        `share`: what they may cost.
        """
        start, num_tokens = seq.num_computed, seq.num_pending
        if num_tokens > 1:
            num_tokens = min(num_tokens, budget.most(start, share))
        end = start + num_tokens
        if not (self.kv.has_room(seq.seq_id, end) or self._take_blocks(seq, end)):
            self._preempt(seq)
            return None
        is_last = end == len(seq.tokens)
        guesses = self._guess(seq, share - num_tokens) if is_last and seq.lookup else ()
        if guesses:
            self.kv.extend(seq.seq_id, end + len(guesses))
        run = ScheduledSeq(
            seq.seq_id,
            start,
            (*seq.tokens[start:end], *guesses),
            self.kv.block_ids(seq.seq_id),
            seq.sample_requests(guesses) if is_last else (),
        )
        run.num_guesses = len(guesses)
        if seq.wants_prompt_logprobs:
            run.prompt_logprobs = seq.request.params.prompt_logprobs
            run.next_token_ids = tuple(seq.tokens[start + 1 : min(end + 1, seq.num_prompt)])
        return run

    def _guess(self, seq: Sequence, budget: int) -> tuple[int, ...]:
        """Guesses at the next tokens that fit into the request and into blocks nobody needs."""
        max_tokens = seq.request.params.max_tokens
        if seq.lookup is None or seq.forks or not max_tokens:
            return ()
        num_most = (
            min(budget, max_tokens - seq.num_output, self.max_model_len - len(seq.tokens)) - 1
        )
        guesses = seq.lookup.guess(seq.tokens, num_most, len(self.running))
        if guesses and self.kv.lacking(seq.seq_id, len(seq.tokens) + len(guesses)):
            return ()
        return guesses

    def _may_enter(self, seq: Sequence) -> bool:
        """True if there are blocks and seats for a waiting sequence, or others must yield some."""
        if not self._finds_room(seq) and self._victim(seq) is None:
            return False
        return self._has_seats(seq) or bool(self.running and self.running.last.key > seq.key)

    def _finds_room(self, seq: Sequence) -> bool:
        # All of its known tokens must find room, not only the first chunk: half a prompt is no use,
        # and it would be the first to be robbed. So would it be for what others need soon.
        if self.kv.lacking(seq.seq_id, len(seq.tokens)):
            return False
        if not self.running:
            return True
        return blocks_needed_soon(self.kv, (*self.running, seq)) <= self.kv.num_free

    def _has_seats(self, seq: Sequence) -> bool:
        return self._num_seats + seq.num_seats <= self.config.max_num_seqs

    def _admit(self, seq: Sequence, budget: StepBudget, share: int) -> ScheduledSeq | None:
        """Seat a waiting sequence and give it its first run; None if it had to give way."""
        while not self._has_seats(seq):
            if self.running.last.key < seq.key:
                return None
            self._preempt(self.running.last)
        self.waiting.remove(seq)
        self._holders.discard(seq)
        self.running.add(seq)
        seq.is_running = True
        self._num_seats += seq.num_seats
        self.admitted.append(seq)
        self.kv.promise(seq.seq_id)
        return self._run(seq, budget, share)

    def _match(self, seq: Sequence) -> None:
        salt = seq.request.cache_salt
        extra_keys = (f"salt:{salt}",) if salt is not None else ()
        self.kv.expect(seq.seq_id, seq.max_len, seq.num_seats)
        seq.num_computed = self.kv.match(
            seq.seq_id, seq.tokens, extra_keys, max_tokens=seq.max_matched_tokens
        )
        self._holders.discard(seq)
        self._holders.add(seq)
        if not seq.has_started:
            seq.num_cached = seq.num_computed

    def _awaits(self, seq: Sequence) -> bool:
        if self.kv.is_in_flight(seq.seq_id):
            return True
        wants_to_match = seq.max_matched_tokens is None
        return wants_to_match and self.kv.awaits(seq.seq_id, len(seq.tokens))

    def _recall(self, seq: Sequence) -> bool:
        """Bring back what slower tiers hold of it; True if it has to wait for that."""
        if seq.max_matched_tokens is not None:
            return False
        num_blocks = self.promotion.num_worthwhile(self.kv.find_below(seq.seq_id, seq.tokens))
        if not num_blocks or not self._make_room(seq, len(seq.tokens)):
            return False
        seq.num_computed = self.kv.recall(seq.seq_id, seq.tokens, num_blocks)
        if not seq.has_started:
            seq.num_cached = seq.num_computed
        return self._awaits(seq)

    # -- making room -------------------------------------------------------------------------------

    def _take_blocks(self, seq: Sequence, num_tokens: int) -> bool:
        """Room for the first `num_tokens` tokens of `seq`, and the blocks taken."""
        if not self._make_room(seq, num_tokens):
            return False
        self.kv.extend(seq.seq_id, num_tokens)
        return True

    def _make_room(self, seq: Sequence, num_tokens: int) -> bool:
        """Room for the first `num_tokens` tokens of `seq`, at the cost of those after it."""
        while lack := self.kv.lacking(seq.seq_id, num_tokens):
            victim = self._victim(seq)
            if victim is None:
                return False
            if victim.is_running:
                self._preempt(victim)
            self.stats.num_preempted_blocks += self._take_from(self.kv, victim.seq_id, lack)
            num_left = self.kv.num_computed(victim.seq_id)
            self.stats.num_preempted_tokens += victim.num_computed - num_left
            victim.num_reached = max(victim.num_reached, victim.num_computed)
            victim.num_computed = num_left
            if not self.kv.block_ids(victim.seq_id):
                self._holders.discard(victim)
        return True

    def _victim(self, seq: Sequence) -> Sequence | None:
        """The last in the order that holds blocks, if it comes after `seq`; else one beside it."""
        candidates = [queue.last for queue in (self.running, self._holders) if queue]
        victim = max(candidates, key=by_key, default=None)
        if victim is not None and victim.key > seq.key:
            return victim
        return settled_sibling(self.kv, seq)

    def _preempt(self, seq: Sequence) -> None:
        """Unseat a sequence. It keeps its blocks until somebody needs them."""
        self._leave(seq)
        self.waiting.add(seq)
        self._holders.add(seq)
        self.stats.num_preemptions += 1

    def _leave(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self.kv.withdraw(seq.seq_id)
        seq.is_running = False
        self._num_seats -= seq.num_seats

    def resync(self) -> None:
        """What was counted on did not come from the disk: some tables are shorter than thought."""
        for seq in self.sequences.values():
            if self.kv.holds(seq.seq_id):
                seq.num_computed = self.kv.num_computed(seq.seq_id)
                if not (seq.is_running or self.kv.block_ids(seq.seq_id)):
                    self._holders.discard(seq)

    def check(self) -> None:
        """Prove the books: every sequence in one queue, seats counted, blocks as kv says."""
        self.kv.check()
        running, waiting = set(self.running), set(self.waiting)
        assert not running & waiting, "a sequence runs and waits"
        assert running | waiting == set(self.sequences.values()), "a sequence is in no queue"
        assert all(seq.is_running == (seq in running) for seq in running | waiting)
        assert self._num_seats == sum(seq.num_seats for seq in running), "seats are miscounted"
        holders = {seq for seq in waiting if self.kv.holds(seq.seq_id)}
        held = {seq for seq in holders if self.kv.block_ids(seq.seq_id)}
        assert held <= set(self._holders) <= holders, "a waiting sequence's blocks cannot be had"
        for seq in running | holders:
            assert seq.num_computed == self.kv.num_computed(seq.seq_id), f"{seq.seq_id}: computed?"

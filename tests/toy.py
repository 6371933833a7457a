"""A toy tensor plane: block memory of token ids. It executes StepPlans and trusts nothing.

The "logits" of a position are a hash of all token ids before it, read back from the blocks: a wrong
block, a missed copy or a stale tail changes the tokens at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from octavo.kv.moves import Copy, Demote, Move, MoveOutcome, Promote, Tier
from octavo.kv.prefix import Key
from octavo.request import TokenLogprob
from octavo.sched.plan import Candidates, ScheduledSeq, StepPlan, StepResult

Contents = list[int | None]

TAG = 1000
"""Above all token ids: what is added to a token in a block says whose it is."""


@dataclass
class ToyMemory:
    """Blocks of token ids on all tiers; None where nothing was ever written.

    Disk reads arrive, and failed writes are reported, with the `delay`-th later list of moves. `disk` may be handed to the next
    memory: a restart. Slots in `broken_slots` take no writes. What is written may be token + tag;
    tags are multiples of TAG.
    """

    num_blocks: int
    block_size: int
    disk: dict[int, tuple[Key, Contents]] = field(default_factory=dict)
    delay: int = 1
    blocks: list[Contents] = field(init=False)
    host: dict[int, Contents] = field(default_factory=dict)
    broken_slots: set[int] = field(default_factory=set)
    _lost: list[tuple[int, Demote]] = field(default_factory=list)
    _reads: list[tuple[int, Promote, Contents | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = [[None] * self.block_size for _ in range(self.num_blocks + 1)]

    def execute(self, moves: Sequence[Move]) -> MoveOutcome:
        outcome = MoveOutcome()
        self._deliver(outcome)
        for move in moves:
            if isinstance(move, Copy):
                self.blocks[move.dst] = list(self.blocks[move.src])
            elif isinstance(move, Demote):
                self._demote(move)
            elif move.src.tier is Tier.HOST:
                self.blocks[move.dst] = list(self.host[move.src.slot])
            else:
                key, contents = self.disk.get(move.src.slot, (None, None))
                found = list(contents) if contents is not None and key == move.key else None
                self._reads.append((self.delay, move, found))
                self.blocks[move.dst] = [None] * self.block_size
        return outcome

    def _demote(self, move: Demote) -> None:
        is_host = move.src.tier is Tier.HOST
        contents = list(self.host[move.src.slot] if is_host else self.blocks[move.src.slot])
        held = list(array("i", move.key.tokens))
        begins = [None if entry is None else entry % TAG for entry in contents[: len(held)]]
        assert begins == held, f"{move} saves a block that holds {contents}"
        if move.dst.tier is Tier.HOST:
            self.host[move.dst.slot] = contents
        elif move.dst.slot in self.broken_slots:
            self._lost.append((self.delay, move))
        else:
            self.disk[move.dst.slot] = (move.key, contents)

    def _deliver(self, outcome: MoveOutcome) -> None:
        self._reads = [(left - 1, move, found) for left, move, found in self._reads]
        for left, move, found in self._reads:
            if left < 0:
                if found is not None:
                    self.blocks[move.dst] = found
                (outcome.missing if found is None else outcome.arrived).append(move)
        self._reads = [read for read in self._reads if read[0] >= 0]
        self._lost = [(left - 1, move) for left, move in self._lost]
        outcome.lost += [move for left, move in self._lost if left < 0]
        self._lost = [(left, move) for left, move in self._lost if left >= 0]

    def write(self, block_ids: tuple[int, ...], start: int, token_ids: tuple[int, ...]) -> None:
        for position, token in enumerate(token_ids, start):
            block = self.blocks[block_ids[position // self.block_size]]
            block[position % self.block_size] = token

    def read(self, block_ids: tuple[int, ...], num_tokens: int) -> list[int | None]:
        tokens = [token for block_id in block_ids for token in self.blocks[block_id]]
        return tokens[:num_tokens]


def next_token(
    token_ids: list[int], index: int = 0, vocab: int = 50, window: int | None = None
) -> int:
    """The token that follows `token_ids` in choice `index`, of which it sees the last `window`."""
    seen = token_ids if window is None else token_ids[-window:]
    data = ",".join(map(str, [index, *seen])).encode()
    return int.from_bytes(blake2b(data, digest_size=4).digest(), "little") % vocab


def next_scores(token_ids: list[int], vocab: int = 50, window: int | None = None) -> list[float]:
    """The log-probability of every token after `token_ids`; coarse, so that there are ties."""
    seen = token_ids if window is None else token_ids[-window:]
    data = ",".join(map(str, seen)).encode()
    raw = [blake2b(data + bytes([i]), digest_size=1).digest()[0] for i in range(vocab)]
    return [-(x // 8) / 8 for x in raw]


class ToyRunner:
    """Executes plans on toy memory. Ids starting with an entry of `broken` fail.

    `tags`: request id -> its tag; it must meet no other in what it reads. With `truth` (seq_id ->
    its tokens) all that a run reads is compared, not only what the last token makes of it.
    """

    def __init__(
        self, num_blocks: int, block_size: int = 16, vocab: int = 50, window: int | None = None
    ) -> None:
        self.memory = ToyMemory(num_blocks, block_size)
        self.vocab = vocab
        self.window = window
        self.plans: list[StepPlan] = []
        self.broken: set[str] = set()
        self.tags: dict[str, int] = {}
        self.truth: Callable[[str], list[int]] | None = None

    can_save = can_save_later = True

    def move(self, moves: Sequence[Move], timeout: float) -> MoveOutcome:
        return self.memory.execute(moves)

    def close(self, timeout: float) -> None:
        pass

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        result = StepResult()
        seqs = plan.seqs
        self._step(seqs, result)
        for _ in range(1, plan.num_steps):
            seqs = tuple(run.after(result.sampled[run.seq_id][-1].token_id) for run in seqs)
            self._step(seqs, result)
        return result

    def _step(self, seqs: tuple[ScheduledSeq, ...], result: StepResult) -> None:
        for run in seqs:
            tag = self.tags.get(_request_of(run), 0)
            tokens = tuple([token + tag for token in run.token_ids])
            self.memory.write(run.block_ids, run.start, tokens)
        for run in seqs:
            self._compute(run, result)

    def _read(self, run: ScheduledSeq) -> list[int]:
        """The tokens up to the run's end; those before its window are 0."""
        end, tag = run.start + len(run.token_ids), self.tags.get(_request_of(run), 0)
        first = 0 if self.window is None else max(0, run.start + 1 - self.window)
        tokens = [0] * first
        for entry in self.memory.read(run.block_ids, end)[first:]:
            assert entry is not None, f"{run.seq_id} reads a slot that was never written"
            assert entry - entry % TAG == tag, f"{run.seq_id} reads what another tenant wrote"
            tokens.append(entry % TAG)
        if self.truth is not None:
            wanted = self.truth(run.seq_id)[:end]  # guesses may stand after it
            assert tokens[first : len(wanted)] == wanted[first:], f"{run.seq_id} reads other tokens"
        return tokens

    def _compute(self, run: ScheduledSeq, result: StepResult) -> None:
        end = run.start + len(run.token_ids)
        known = self._read(run)
        if _request_of(run) in self.broken:
            result.failed[run.seq_id] = "broken on purpose"
        if run.prompt_logprobs is not None:
            result.prompt_logprobs[run.seq_id] = tuple(
                TokenLogprob(
                    token, -float(next_token(known[: run.start + 1 + i], 0, 50, self.window))
                )
                for i, token in enumerate(run.next_token_ids)
            )
        for sample in run.samples:
            if sample.num_candidates:
                result.candidates[sample.seq_id] = self._candidates(known, sample.num_candidates)
                continue
            token = next_token(known[: end + sample.row + 1], sample.index, self.vocab, self.window)
            result.sampled.setdefault(sample.seq_id, []).append(TokenLogprob(token, -1.0))

    def _candidates(self, known: list[int], num: int) -> Candidates:
        scores = next_scores(known, self.vocab, self.window)
        ids = sorted(range(self.vocab), key=lambda i: (-scores[i], i))[:num]
        best = tuple(scores[i] for i in ids)
        return Candidates(tuple(ids), best, best)


def _request_of(run: ScheduledSeq) -> str:
    return run.seq_id.split("#")[0]


def generate_alone(
    prompt: list[int], num_tokens: int, index: int = 0, vocab: int = 50, window: int | None = None
) -> list[int]:
    """What a lone, cold run must give."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens, index, vocab, window))
    return tokens[len(prompt) :]

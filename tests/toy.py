"""A toy tensor plane: block memory of token ids. It executes StepPlans and trusts nothing.

The "logits" of a position are a hash of all token ids before it, read back from the blocks: a wrong
block, a missed copy or a stale tail changes the tokens at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from octavo.kv.moves import Move
from octavo.request import TokenLogprob
from octavo.sched.plan import ScheduledSeq, StepPlan, StepResult


@dataclass
class ToyMemory:
    """Blocks of token ids; None where nothing was ever written."""

    num_blocks: int
    block_size: int
    blocks: list[list[int | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = [[None] * self.block_size for _ in range(self.num_blocks + 1)]

    def execute(self, moves: tuple[Move, ...]) -> None:
        for move in moves:
            self.blocks[move.dst] = list(self.blocks[move.src])

    def write(self, block_ids: tuple[int, ...], start: int, token_ids: tuple[int, ...]) -> None:
        for position, token in enumerate(token_ids, start):
            block = self.blocks[block_ids[position // self.block_size]]
            block[position % self.block_size] = token

    def read(self, block_ids: tuple[int, ...], num_tokens: int) -> list[int | None]:
        tokens = [token for block_id in block_ids for token in self.blocks[block_id]]
        return tokens[:num_tokens]


def next_token(token_ids: list[int], index: int = 0, vocab: int = 50) -> int:
    """The token that follows `token_ids` in choice `index`."""
    data = ",".join(map(str, [index, *token_ids])).encode()
    return int.from_bytes(blake2b(data, digest_size=4).digest(), "little") % vocab


class ToyRunner:
    """Executes plans on toy memory. Ids starting with an entry of `broken` fail."""

    def __init__(self, num_blocks: int, block_size: int = 16, vocab: int = 50) -> None:
        self.memory = ToyMemory(num_blocks, block_size)
        self.vocab = vocab
        self.plans: list[StepPlan] = []
        self.broken: set[str] = set()

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        result = StepResult()
        self.memory.execute(plan.moves)
        for run in plan.seqs:
            self.memory.write(run.block_ids, run.start, run.token_ids)
        for run in plan.seqs:
            self._compute(run, result)
        return result

    def _compute(self, run: ScheduledSeq, result: StepResult) -> None:
        end = run.start + len(run.token_ids)
        read = self.memory.read(run.block_ids, end)
        assert None not in read, f"{run.seq_id} reads a slot that was never written"
        known = [token for token in read if token is not None]
        if run.seq_id.split("#")[0] in self.broken:
            result.failed[run.seq_id] = "broken on purpose"
        if run.prompt_logprobs is not None:
            result.prompt_logprobs[run.seq_id] = tuple(
                TokenLogprob(token, -float(next_token(known[: run.start + 1 + i])))
                for i, token in enumerate(run.next_token_ids)
            )
        for sample in run.samples:
            token = next_token(known[: end + sample.row + 1], sample.index, self.vocab)
            result.sampled.setdefault(sample.seq_id, []).append(TokenLogprob(token, -1.0))


def generate_alone(
    prompt: list[int], num_tokens: int, index: int = 0, vocab: int = 50
) -> list[int]:
    """What a lone, cold run must give."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens, index, vocab))
    return tokens[len(prompt) :]

"""The KV manager against a dumb model (a dict of token lists) and a toy memory that executes its moves."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from octavo.kv.manager import KVManager
from tests.toy import ToyMemory

BLOCK = 4
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=30)


class KVMachine(RuleBasedStateMachine):
    """Tokens per sequence, as a plain dict; every block read must hold what the dict says."""

    seqs = Bundle("seqs")

    def __init__(self) -> None:
        super().__init__()
        self.kv = KVManager(num_blocks=10, block_size=BLOCK)
        self.memory = ToyMemory(10, BLOCK)
        self.tokens: dict[str, list[int]] = {}
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def compute(self, seq_id: str, num: int) -> None:
        """Up to `num` pending tokens: room, moves, writes, commit; as a step does it."""
        tokens, start = self.tokens[seq_id], self.kv.num_computed(seq_id)
        end = min(len(tokens), start + num)
        free = self.kv.num_free
        lack = self.kv.lacking(seq_id, end)
        table = self.kv.block_ids(seq_id)
        added = self.kv.extend(seq_id, end)
        assert (added is None) == (lack > 0)
        if added is None:
            assert (self.kv.num_free, self.kv.block_ids(seq_id)) == (free, table)
            return
        moves = self.kv.take_moves()
        self.memory.execute(moves)
        self.memory.write(self.kv.block_ids(seq_id), start, tuple(tokens[start:end]))
        self.kv.moves_done(moves)
        self.kv.commit(seq_id, tokens, end)

    @rule(target=seqs, tokens=TOKENS, salt=st.sampled_from(["", "a"]))
    def open(self, tokens: list[int], salt: str) -> str:
        seq_id = self.name()
        self.tokens[seq_id] = tokens
        found = self.kv.match(seq_id, tokens, (salt,))
        assert found < len(tokens)
        assert found % BLOCK == 0
        return seq_id

    @rule(seq_id=seqs, num=st.integers(1, 9))
    def step(self, seq_id: str, num: int) -> None:
        self.compute(seq_id, num)

    @rule(seq_id=seqs, token=st.integers(0, 2))
    def append(self, seq_id: str, token: int) -> None:
        self.tokens[seq_id].append(token)
        self.compute(seq_id, 1)

    @rule(target=seqs, seq_id=seqs)
    def fork(self, seq_id: str) -> str:
        child = self.name()
        self.tokens[child] = list(self.tokens[seq_id])
        free = self.kv.num_free
        self.kv.fork(seq_id, child)
        assert self.kv.num_free == free
        return child

    @rule(seq_id=seqs, num=st.integers(1, 4))
    def give_up(self, seq_id: str, num: int) -> None:
        free = self.kv.num_free
        freed = self.kv.give_up(seq_id, num)
        assert self.kv.num_free == free + freed
        assert freed == num or not self.kv.block_ids(seq_id)

    @rule(seq_id=seqs)
    def rematch(self, seq_id: str) -> None:
        before = self.kv.num_computed(seq_id)
        assert self.kv.match(seq_id, self.tokens[seq_id]) >= before

    @rule(seq_id=consumes(seqs))
    def free(self, seq_id: str) -> None:
        self.kv.free(seq_id)
        del self.tokens[seq_id]

    @invariant()
    def books_are_right(self) -> None:
        self.kv.check()

    @invariant()
    def memory_holds_the_tokens(self) -> None:
        for seq_id, tokens in self.tokens.items():
            num = self.kv.num_computed(seq_id)
            assert self.memory.read(self.kv.block_ids(seq_id), num) == tokens[:num]

    @invariant()
    def tokens_in_use_are_counted_right(self) -> None:
        fill: dict[int, int] = {}
        for seq_id in self.tokens:
            left = self.kv.num_computed(seq_id)
            for block_id in self.kv.block_ids(seq_id):
                fill[block_id] = max(fill.get(block_id, 0), min(BLOCK, left))
                left -= min(BLOCK, left)
        assert self.kv.num_tokens_in_use == sum(fill.values())


KVMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestKV = KVMachine.TestCase

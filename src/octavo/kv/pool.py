"""The device's blocks: who holds them, what they contain, which goes next.

Every block is in exactly one state:

    empty   nothing worth keeping                        -> the first to be taken
    used    some table or pending move refers to it      (ref_count > 0)
    cached  nobody refers to it, but its contents are    -> taken when no block is empty,
            indexed and a later request may want them       coldest first

    take ─► used ─── release, indexed ───► cached ─── acquire ───► used
             └────── release, not indexed ─► empty ◄── evicted ─────┘ (cached, by take)

The pool has one block more than it promises. At most `num_blocks` are in use, and at most
`num_blocks` are indexed; the spare is where an unfinished tail goes, so that it never pushes out a
cached block that would still fit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from octavo.kv.prefix import Key


class BlockPool:
    """`num_blocks` usable blocks with ids 0 .. num_blocks (one spare included).

    `on_index(key)` is called when a key becomes findable here, `on_evict(block_id, key)` when it
    ceases to be, while the block still holds the contents.
    """

    def __init__(
        self,
        num_blocks: int,
        on_index: Callable[[Key], None] = lambda key: None,
        on_evict: Callable[[int, Key], None] = lambda block_id, key: None,
    ) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks: expected at least 1, got {num_blocks}")
        self.num_blocks = num_blocks
        self.num_evictions = 0
        self.num_references = 0  # in all
        self.num_shared = 0  # blocks with more than one
        self._on_index = on_index
        self._on_evict = on_evict
        self._ref_counts = [0] * (num_blocks + 1)
        self._keys: list[Key | None] = [None] * (num_blocks + 1)
        self._index: dict[bytes, int] = {}
        self._empty = list(range(num_blocks, -1, -1))  # a stack; low ids first
        self._cached: OrderedDict[int, None] = OrderedDict()  # coldest first
        self._num_used = 0

    @property
    def num_used(self) -> int:
        """Blocks that somebody refers to."""
        return self._num_used

    @property
    def num_cached(self) -> int:
        """Blocks that nobody refers to but that can still be found."""
        return len(self._cached)

    @property
    def num_free(self) -> int:
        """Blocks that `take` can still give: all that are not in use, less the spare."""
        return self.num_blocks - self._num_used

    def ref_count(self, block_id: int) -> int:
        """References to the block."""
        return self._ref_counts[block_id]

    def key_of(self, block_id: int) -> Key | None:
        """The key under which the block is indexed, if it is."""
        return self._keys[block_id]

    def find(self, block_hash: bytes) -> int | None:
        """The block that has that hash."""
        return self._index.get(block_hash)

    def all_keys(self) -> list[Key]:
        """Keys of all blocks that can be found."""
        return [key for key in self._keys if key is not None]

    def take(self, num: int) -> list[int] | None:
        """`num` blocks with one reference each; None, with nothing taken, if there are fewer."""
        if num > self.num_free:
            return None
        block_ids = [self._empty.pop() if self._empty else self._evict() for _ in range(num)]
        for block_id in block_ids:
            self._ref_counts[block_id] = 1
        self._num_used += num
        self.num_references += num
        return block_ids

    def take_these(self, block_ids: Sequence[int]) -> None:
        """Empty blocks that the caller has chosen, with one reference each."""
        wanted = set(block_ids)
        left = [block_id for block_id in self._empty if block_id not in wanted]
        if len(left) + len(block_ids) != len(self._empty):
            raise ValueError(f"blocks {sorted(wanted)} are not all empty")
        self._empty = left
        for block_id in block_ids:
            self._ref_counts[block_id] = 1
        self._num_used += len(block_ids)
        self.num_references += len(block_ids)

    def acquire(self, block_id: int) -> None:
        """One more reference to a used or cached block."""
        if self._ref_counts[block_id] == 0:
            del self._cached[block_id]
            self._num_used += 1
        self._ref_counts[block_id] += 1
        self.num_references += 1
        self.num_shared += self._ref_counts[block_id] == 2

    def release(self, block_id: int) -> bool:
        """One reference less. True if that was the last one and the block can be taken again."""
        if self._ref_counts[block_id] < 1:
            raise ValueError(f"block {block_id} is released but nobody holds it")
        self._ref_counts[block_id] -= 1
        self.num_references -= 1
        if self._ref_counts[block_id]:
            self.num_shared -= self._ref_counts[block_id] == 1
            return False
        self._num_used -= 1
        if self._keys[block_id] is None:
            self._empty.append(block_id)
        else:
            self._cached[block_id] = None  # warmest
        return True

    def index(self, block_id: int, key: Key) -> int:
        """Make a used block findable; returns the block that is found from now on.

        If another block has that hash already, it holds the same bytes: that one is returned.
        """
        known = self._index.get(key.hash)
        if known is not None:
            return known
        self._keys[block_id] = key
        self._index[key.hash] = block_id
        self._on_index(key)
        if len(self._index) > self.num_blocks:
            self._empty.append(self._evict())
        return block_id

    def unindex(self, block_id: int) -> Key:
        """The block can no longer be found; returns what was known of it."""
        key = self._keys[block_id]
        assert key is not None, f"block {block_id} is not indexed"
        del self._index[key.hash]
        self._keys[block_id] = None
        if block_id in self._cached:
            del self._cached[block_id]
            self._empty.append(block_id)
        return key

    def _evict(self) -> int:
        block_id, _ = self._cached.popitem(last=False)
        self.num_evictions += 1
        key = self._keys[block_id]
        assert key is not None
        del self._index[key.hash]
        self._keys[block_id] = None
        self._on_evict(block_id, key)
        return block_id

    def check(self) -> None:
        """Prove the books; AssertionError says which rule is broken."""
        used = {b for b, count in enumerate(self._ref_counts) if count}
        empty, cached = set(self._empty), set(self._cached)
        assert len(empty) == len(self._empty), "a block is empty twice"
        assert len(used) == self._num_used, "num_used is wrong"
        assert sum(self._ref_counts) == self.num_references, "num_references is wrong"
        assert sum(c > 1 for c in self._ref_counts) == self.num_shared, "num_shared is wrong"
        assert len(used) + len(empty) + len(cached) == self.num_blocks + 1, "blocks got lost"
        assert len(used | empty | cached) == self.num_blocks + 1, "a block is in two states"
        assert len(used) <= self.num_blocks, "more blocks in use than promised"
        assert len(self._index) <= self.num_blocks, "more blocks indexed than promised"
        indexed = {key.hash: b for b, key in enumerate(self._keys) if key is not None}
        assert indexed == self._index, "index and keys disagree"
        assert cached <= set(self._index.values()), "a cached block cannot be found"
        assert not empty & set(self._index.values()), "an empty block is indexed"

"""A tier below the device: a fixed number of slots, found by hash, the coldest given up first."""

from __future__ import annotations

from collections import OrderedDict

from octavo.kv.moves import Place, Tier
from octavo.kv.prefix import Key


class SlotTier:
    """`num_slots` slots, each empty or holding one block's contents."""

    def __init__(self, tier: Tier, num_slots: int) -> None:
        self.tier = tier
        self.num_slots = num_slots
        self._empty = list(range(num_slots - 1, -1, -1))  # a stack; low slots first
        self._held: OrderedDict[bytes, tuple[int, Key]] = OrderedDict()  # coldest first

    @property
    def num_used(self) -> int:
        """Slots that hold a block."""
        return len(self._held)

    def find(self, block_hash: bytes) -> Place | None:
        """Where the block with that hash lies."""
        entry = self._held.get(block_hash)
        return Place(self.tier, entry[0]) if entry is not None else None

    def all_keys(self) -> list[Key]:
        """Keys of all blocks that lie here, coldest first."""
        return [key for _, key in self._held.values()]

    def touch(self, block_hash: bytes) -> None:
        """The block is wanted: if it is here, it becomes the warmest."""
        if block_hash in self._held:
            self._held.move_to_end(block_hash)

    @property
    def next_out(self) -> tuple[Place, Key] | None:
        """What the next `put` will displace."""
        if self._empty or not self._held:
            return None
        slot, key = next(iter(self._held.values()))
        return Place(self.tier, slot), key

    def put(self, key: Key) -> Place:
        """A slot for a block that is not here; displaces `next_out`."""
        if self._empty:
            slot = self._empty.pop()
        else:
            _, (slot, _) = self._held.popitem(last=False)
        self._held[key.hash] = (slot, key)
        return Place(self.tier, slot)

    def restore(self, slot: int, key: Key) -> bool:
        """At start: `slot` holds `key` already. False if it cannot be (out of range, or twice)."""
        if key.hash in self._held or not 0 <= slot < self.num_slots:
            return False
        self._held[key.hash] = (slot, key)
        return True

    def restored(self) -> None:
        """All that was there is restored: the other slots are empty."""
        taken = {slot for slot, _ in self._held.values()}
        self._empty = [s for s in range(self.num_slots - 1, -1, -1) if s not in taken]

    def forget(self, place: Place, key: Key) -> bool:
        """`place` does not hold `key` after all. False if it was not said to."""
        if self._held.get(key.hash) != (place.slot, key):
            return False
        del self._held[key.hash]
        self._empty.append(place.slot)
        return True

    def check(self) -> None:
        """Prove the books; AssertionError says which rule is broken."""
        name, slots = self.tier.value, [slot for slot, _ in self._held.values()]
        assert len(set(slots)) == len(slots), f"{name}: two blocks in a slot"
        assert sorted(slots + self._empty) == list(range(self.num_slots)), f"{name}: slots got lost"
        assert all(h == key.hash for h, (_, key) in self._held.items()), f"{name}: a wrong hash"

"""Blocks over all tiers: what is where, and the moves between them.

    take ◄──── device pool ────► evicted, coldest first
                 │    ▲
          Demote │    │ Promote          a promoted block stays where it came from as well:
                 ▼    │                  the next demotion of it costs nothing
             host, then disk ──► dropped, coldest first

Each verb changes the books at once and appends to `moves` what the tensor plane must do to make
them true. It does so in order and before it computes anything, so a block whose demotion is ordered
can be given away in the same breath. Only a promotion from the disk takes longer than that: until
it has arrived its block is `in_flight`, pinned, and who holds it must not run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from octavo.kv.moves import Copy, Demote, Move, MoveOutcome, Place, Promote, Tier
from octavo.kv.pool import BlockPool
from octavo.kv.prefix import Children, Key
from octavo.kv.stats import KVStats
from octavo.kv.tiers import SlotTier


class TieredMemory:
    """The device pool, and the tiers below it, of which each may have no slots."""

    def __init__(self, num_blocks: int, num_host_blocks: int = 0, num_disk_blocks: int = 0) -> None:
        self.pool = BlockPool(num_blocks, self._indexed, self._evicted)
        self.host = SlotTier(Tier.HOST, num_host_blocks)
        self.disk = SlotTier(Tier.DISK, num_disk_blocks)
        self.children = Children()
        self.stats = KVStats()
        self._moves: list[Move] = []
        self._pins: Counter[int] = Counter()
        self._in_flight: dict[int, Promote] = {}
        self._unsaved: dict[bytes, Key] = {}  # findable, not on the disk; oldest first

    # -- finding -----------------------------------------------------------------------------------

    def find(self, block_hash: bytes) -> Place | None:
        """Where the block can be had quickest."""
        block_id = self.pool.find(block_hash)
        if block_id is not None:
            return Place(Tier.DEVICE, block_id)
        return self._find_below(block_hash)

    def _find_below(self, block_hash: bytes) -> Place | None:
        return self.host.find(block_hash) or self.disk.find(block_hash)

    def is_in_flight(self, block_id: int) -> bool:
        """True if the block's contents have been ordered from the disk and are not there yet."""
        return block_id in self._in_flight

    @property
    def pins(self) -> Counter[int]:
        """Block -> references that pending moves hold on it; for reading."""
        return self._pins

    @property
    def has_lower_tiers(self) -> bool:
        """True if there is a tier below the device."""
        return bool(self.host.num_slots or self.disk.num_slots)

    @property
    def num_unsaved(self) -> int:
        """Blocks that `save` has still to copy to the disk."""
        return len(self._unsaved)

    # -- ordering moves ----------------------------------------------------------------------------

    def copy(self, src: int, dst: int) -> None:
        """Copy on write. The caller's reference to `src` becomes the move's, until it is done."""
        self._moves.append(Copy(src, dst))
        self._pins[src] += 1
        self.stats.num_cow_copies += 1

    def acquire(self, key: Key, is_hit: bool = True) -> int | None:
        """A reference to the device block with that key; None if there is none to be had."""
        block_id = self.pool.find(key.hash)
        # A cached block counts as free until it is acquired; the last one may not be to be had.
        if block_id is None or (self.pool.ref_count(block_id) == 0 and not self.pool.num_free):
            return None
        self.pool.acquire(block_id)
        self.stats.num_hits_device += is_hit
        return block_id

    def bring(self, key: Key, private: bool = False) -> int | None:
        """A reference to a device block with the contents of `key`, from whatever tier has it.

        `private`: a block of its own, which may be written to and is not findable. None if no tier
        has the key, or no block can be had.
        """
        if not private and self.pool.find(key.hash) is not None:
            return self.acquire(key)
        if self._find_below(key.hash) is None:
            return None
        self.touch(key)  # taking a block may displace the coldest of every tier
        taken = self.pool.take(1)
        if taken is None:
            return None
        block_id, place = taken[0], self._find_below(key.hash)
        if place is None:  # displaced all the same: the tier has a single slot
            self.pool.release(block_id)
            return None
        self._promote(place, key, block_id)
        if not private:
            self.pool.index(block_id, key)
        return block_id

    def touch(self, key: Key) -> None:
        """The key is wanted: in slower tiers it will be the last to go."""
        self.host.touch(key.hash)
        self.disk.touch(key.hash)

    def _promote(self, place: Place, key: Key, block_id: int) -> None:
        move = Promote(place, block_id, key)
        self._moves.append(move)
        if place.tier is Tier.HOST:
            self.stats.num_promoted_host += 1
            return
        self.stats.num_promoted_disk += 1
        self._in_flight[block_id] = move
        self.pool.acquire(block_id)
        self._pins[block_id] += 1

    def demote(self, block_id: int, key: Key) -> None:
        """Keep the contents of a device block in the tier below, if they are not there."""
        self.touch(key)  # it leaves the device just now: what is below has been cold for longer
        if self.host.num_slots:
            if self.host.find(key.hash) is None:
                self._to_host(block_id, key)
        elif self.disk.num_slots and self.disk.find(key.hash) is None:
            self._to_disk(Place(Tier.DEVICE, block_id), key)

    def _to_host(self, block_id: int, key: Key) -> None:
        displaced = self.host.next_out
        place = self.host.put(key)  # first: the disk may be displacing this very key
        if displaced is not None:
            if self.disk.num_slots and self.disk.find(displaced[1].hash) is None:
                self._to_disk(*displaced)
            self._gone(displaced[1])
        self._moves.append(Demote(Place(Tier.DEVICE, block_id), place, key))
        self.stats.num_demoted_host += 1

    def _to_disk(self, src: Place, key: Key) -> None:
        displaced = self.disk.next_out
        self._moves.append(Demote(src, self.disk.put(key), key))
        self.stats.num_demoted_disk += 1
        self._unsaved.pop(key.hash, None)
        if displaced is not None:
            self._gone(displaced[1])

    def save(self, num_blocks: int) -> int:
        """Copy up to `num_blocks` blocks to the disk that are not on it; returns how many."""
        num = 0
        while self._unsaved and num < num_blocks:
            block_hash, key = next(iter(self._unsaved.items()))
            place = self.find(block_hash)
            assert place is not None, "a block to be saved that nobody knows"
            self._to_disk(place, key)
            num += 1
        return num

    # -- moves and what became of them -------------------------------------------------------------

    @property
    def has_moves(self) -> bool:
        """True if moves are ordered that nobody has taken."""
        return bool(self._moves)

    @property
    def num_in_flight(self) -> int:
        """Promotions from the disk that have not come to their end."""
        return len(self._in_flight)

    def take_moves(self) -> tuple[Move, ...]:
        """The moves ordered since the last call; copies keep their sources until `settle`."""
        moves, self._moves[:] = tuple(self._moves), []
        return moves

    def settle(self, moves: Sequence[Move], outcome: MoveOutcome) -> list[int]:
        """Book what the tensor plane made of `moves` and of earlier ones.

        Returns blocks that hold nothing although a promotion into them was ordered. They are not
        findable any more; who has one in a table must let go of it and of all after it.
        """
        for move in moves:
            if isinstance(move, Copy):
                self._unpin(move.src)
        for move in outcome.arrived:
            if self._in_flight.get(move.dst) == move:
                self._land(move)
        for demotion in outcome.lost:
            self.stats.num_lost += 1
            self._forget(demotion.dst, demotion.key)
            self._note_unsaved(demotion.key)
        return [move.dst for move in outcome.missing if self._miss(move)]

    def _miss(self, move: Promote) -> bool:
        """Nothing came of a promotion; True if its block was still meant for it."""
        self.stats.num_missing += 1
        self._forget(move.src, move.key)
        is_late = move.src.tier is Tier.DISK
        if is_late and self._in_flight.get(move.dst) != move:
            return False
        if self.pool.key_of(move.dst) is not None:  # its own key, or that of a tail begun with it
            self.discard(move.dst)
        if is_late:
            self._land(move)
        return True

    def _land(self, move: Promote) -> None:
        del self._in_flight[move.dst]
        self._unpin(move.dst)

    def _unpin(self, block_id: int) -> None:
        self._pins[block_id] -= 1
        if not self._pins[block_id]:
            del self._pins[block_id]
        self.pool.release(block_id)

    # -- what is known -----------------------------------------------------------------------------

    def restore(self, entries: Iterable[tuple[int, Key]]) -> int:
        """At start: what the disk holds, (slot, key), oldest first. Returns how many are of use."""
        num = 0
        for slot, key in entries:
            if self.disk.restore(slot, key):
                self.children.add(key)
                num += 1
        self.disk.restored()
        return num

    def discard(self, block_id: int) -> None:
        """Forget what a device block holds, without keeping it in a lower tier."""
        self._gone(self.pool.unindex(block_id))

    def swap_out(self, block_id: int) -> None:
        """Move what a device block holds to the tier below, now."""
        key = self.pool.unindex(block_id)
        self.demote(block_id, key)
        self._gone(key)

    def _indexed(self, key: Key) -> None:
        if self._find_below(key.hash) is None:
            self.children.add(key)
        self._note_unsaved(key)

    def _note_unsaved(self, key: Key) -> None:
        """Let `save` take care of a block that is not on the disk."""
        if not self.disk.num_slots or self.disk.find(key.hash) is not None:
            return
        place = self.find(key.hash)
        # What is on its way came from the disk, and may turn out not to exist.
        if place is not None and not (place.tier is Tier.DEVICE and place.slot in self._in_flight):
            self._unsaved[key.hash] = key

    def _evicted(self, block_id: int, key: Key) -> None:
        self.demote(block_id, key)
        self._gone(key)

    def _forget(self, place: Place, key: Key) -> None:
        tier = self.host if place.tier is Tier.HOST else self.disk
        if tier.forget(place, key):
            self._gone(key)

    def _gone(self, key: Key) -> None:
        """A tier has lost `key`; if it was the last one, nobody finds it any more."""
        if self.find(key.hash) is None:
            self.children.remove(key)
            self._unsaved.pop(key.hash, None)
            self.stats.num_dropped += 1

    def check(self) -> None:
        """Prove that pool, tiers, pins, moves and the list of children agree."""
        self.pool.check()
        self.host.check()
        self.disk.check()
        known = {key for tier in (self.pool, self.host, self.disk) for key in tier.all_keys()}
        children = list(self.children)
        assert len(children) == len(set(children)), "a child twice"
        assert set(children) == known, "children and tiers disagree"
        pins = Counter(move.src for move in self._moves if isinstance(move, Copy))
        assert not pins - self._pins, "a pending move reads a block without a pin"
        for block_id, move in self._in_flight.items():
            assert move.dst == block_id, "a promotion into another block"
            assert self._pins[block_id], f"block {block_id} is in flight without a pin"
        unsaved = set(self._unsaved)
        assert unsaved <= {key.hash for key in known}, "a block to be saved that nobody knows"
        assert not unsaved & {key.hash for key in self.disk.all_keys()}, (
            "to be saved, but on the disk"
        )

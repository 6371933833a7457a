"""The manager's books: what can be counted, and the proof that it all agrees."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.kv.manager import KVManager


def num_tokens_in_use(kv: KVManager) -> int:
    """Tokens that the device blocks in use hold, each shared block counted once."""
    room: dict[int, int] = {}  # last blocks may be shared by forks: the fullest view counts
    for table in kv.tables.values():
        if len(table.block_ids) > table.num_dropped:
            tail = table.block_ids[-1]
            key = kv.pool.key_of(tail)
            if key is not None:
                room[tail] = kv.block_size - key.num_tokens
            else:
                empty = len(table.block_ids) * kv.block_size - table.num_committed
                room[tail] = min(room.get(tail, empty), empty)
    return kv.pool.num_used * kv.block_size - sum(room.values())


def check(kv: KVManager) -> None:
    """Prove that tables, pins, reference counts and index agree.

    AssertionError says what does not.
    """
    kv.memory.check()
    held = Counter(b for table in kv.tables.values() for b in table.block_ids[table.num_dropped :])
    for block_id in range(kv.pool.num_blocks + 1):
        num = held[block_id] + kv.memory.pins[block_id]
        assert kv.pool.ref_count(block_id) == num, f"block {block_id}: wrong count"
    for seq_id, table in kv.tables.items():
        assert table.view == tuple(table.block_ids), f"{seq_id}: an old view"
        own = table.block_ids[table.num_dropped :]
        assert len(set(own)) == len(own), f"{seq_id}: a block twice"
        room = len(table.block_ids) * kv.block_size
        assert table.num_committed <= room, f"{seq_id}: no room"
        for i in range(table.num_dropped, table.num_indexed):
            key = kv.pool.key_of(table.block_ids[i])
            assert key == table.chain[i], f"{seq_id}: block {i} is another"
    kv.promises.check(set(kv.tables), {key.hash for key in kv.pool.all_keys()})

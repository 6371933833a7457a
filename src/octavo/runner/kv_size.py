"""How many KV blocks, and how long a request may be: settled before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config import CacheConfig
from octavo.errors import ConfigError
from octavo.runner.kv_storage import KVShape

FREE_SHARE = 0.5
"""Share of the free memory, less the weights, that the KV pool may grow to by default."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the rest of the settings ask of the pool.

    `longest`: the model's own limit in tokens. `max_model_len`: the flag, or None. `max_num_seqs`:
    sequences that run at once. `free_bytes`: memory to be had, the weights already taken off.
    """

    longest: int
    max_model_len: int | None
    max_num_seqs: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class KVSize:
    """The outcome. `num_blocks` are usable ones; the storage holds one spare block more."""

    shape: KVShape
    num_blocks: int
    max_model_len: int
    free_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the storage, the spare block included."""
        return (self.num_blocks + 1) * self.shape.block_bytes

    def __str__(self) -> str:
        """One line for the start of a server."""
        tokens = self.num_blocks * self.shape.block_size
        requests = tokens / self.max_model_len
        count = f"{int(requests):,}" if requests >= 10 else f"{int(requests * 10) / 10:g}"
        return (
            f"KV memory {human(self.num_bytes)} of {human(self.free_bytes)} free:"
            f" {self.num_blocks:,} blocks of {self.shape.block_size} = {tokens:,} tokens ="
            f" {count} request{'' if count == '1' else 's'} of {self.max_model_len:,} tokens"
        )


def human(num_bytes: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"


def size_kv(shape: KVShape, cache: CacheConfig, demand: Demand) -> KVSize:
    """Settle the pool. Raises ConfigError with both numbers and the flag that mends it."""
    num_blocks = _num_blocks(shape, cache, demand)
    needed = (num_blocks + 1) * shape.block_bytes
    if needed > demand.free_bytes:
        flag = "--num-kv-blocks" if cache.num_kv_blocks else "--kv-cache-memory-bytes"
        raise ConfigError(
            f"the KV pool needs {human(needed)} ({num_blocks:,} blocks), but"
            f" {human(max(0, demand.free_bytes))} of memory are free beside the weights;"
            f" lower {flag}",
            flag[2:].replace("-", "_"),
        )
    held = num_blocks * shape.block_size
    if demand.max_model_len is not None and demand.max_model_len > held:
        raise _too_long(shape, cache, num_blocks, demand.max_model_len)
    max_model_len = demand.max_model_len or min(demand.longest, held)
    return KVSize(shape, num_blocks, max_model_len, demand.free_bytes)


def _num_blocks(shape: KVShape, cache: CacheConfig, demand: Demand) -> int:
    """Usable blocks: one block of the memory is the spare that copy-on-write needs."""
    if cache.num_kv_blocks is not None:
        return cache.num_kv_blocks
    if cache.kv_cache_memory_bytes is not None:
        num_blocks = cache.kv_cache_memory_bytes // shape.block_bytes - 1
        source = f"--kv-cache-memory-bytes {cache.kv_cache_memory_bytes}"
    else:
        budget = int(FREE_SHARE * demand.free_bytes)
        longest = demand.max_model_len or demand.longest
        most = demand.max_num_seqs * -(-longest // shape.block_size)
        num_blocks = min(budget // shape.block_bytes - 1, most)
        source = f"{human(max(0, budget))}, half of the free memory beside the weights"
    if num_blocks < 1:
        raise ConfigError(
            f"the KV pool needs at least two blocks of {human(shape.block_bytes)}, got {source};"
            f" raise --kv-cache-memory-bytes to at least {2 * shape.block_bytes}",
            "kv_cache_memory_bytes",
        )
    return num_blocks


def _too_long(shape: KVShape, cache: CacheConfig, num_blocks: int, asked: int) -> ConfigError:
    blocks = -(-asked // shape.block_size)
    needed = (blocks + 1) * shape.block_bytes
    remedy = f"raise --kv-cache-memory-bytes to at least {needed}"
    if cache.num_kv_blocks is not None:
        remedy = f"raise --num-kv-blocks to at least {blocks}"
    return ConfigError(
        f"--max-model-len: one request of {asked:,} tokens needs {human(needed)} of KV memory"
        f" ({blocks:,} blocks), the pool has {human((num_blocks + 1) * shape.block_bytes)}"
        f" ({num_blocks:,} blocks = {num_blocks * shape.block_size:,} tokens); {remedy}, or lower"
        f" --max-model-len to {num_blocks * shape.block_size}",
        "max_model_len",
    )

"""The tiers below the device pool, as the settings ask for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from octavo import __version__
from octavo.config import CacheConfig, EngineConfig
from octavo.errors import ConfigError, StoreError
from octavo.kv.prefix import Key
from octavo.models.checkpoint import Checkpoint
from octavo.ops.base import Ops
from octavo.runner.block_store import BlockStore
from octavo.runner.disk_io import DiskIO
from octavo.runner.fingerprint import fingerprint
from octavo.runner.kv_size import KVSize, human
from octavo.runner.kv_storage import KVShape, KVStorage
from octavo.runner.tier_storage import HostPool, TierStorage

log = logging.getLogger(__name__)

DISK_BYTES = 10 << 30
"""Size of the disk tier unless --disk-kv-bytes says otherwise."""


@dataclass(frozen=True)
class Tiers:
    """The storage of all tiers, and what the KV manager needs to know of them."""

    storage: TierStorage
    num_host_blocks: int
    num_disk_blocks: int
    on_disk: Sequence[tuple[int, Key]]  # (slot, key), oldest first


def make_tiers(
    config: EngineConfig, checkpoint: Checkpoint, kv_size: KVSize, ops: Ops, name: str
) -> Tiers:
    """Reserve memory and open the disk. Raises ConfigError.

    A disk that cannot be used is no reason not to serve: a warning says why, and there is no disk
    tier then.
    """
    cache, shape = config.cache, kv_size.shape
    device = KVStorage(ops, shape, kv_size.num_blocks + 1)
    num_host = host_blocks(cache, shape)
    host = HostPool(shape, num_host) if num_host else None
    store = _open_store(config, checkpoint, kv_size, ops, name)
    on_disk = store.entries() if store is not None else []
    if host is not None:
        log.info("host KV: %s, %s blocks", human(num_host * shape.block_bytes), f"{num_host:,}")
    if store is not None:
        text = "disk KV: %s, %s blocks, %s of them filled"
        log.info(text, store.folder.path, f"{store.num_slots:,}", f"{len(on_disk):,}")
    disk = DiskIO(store) if store is not None else None
    num_disk = store.num_slots if store is not None else 0
    return Tiers(TierStorage(device, host, disk), num_host, num_disk, on_disk)


def host_blocks(cache: CacheConfig, shape: KVShape) -> int:
    """Blocks of the host tier. Raises ConfigError if not even one fits its size."""
    if cache.host_kv_bytes is None:
        return 0
    num_blocks = cache.host_kv_bytes // shape.block_bytes
    if num_blocks < 1:
        raise ConfigError(
            f"--host-kv-bytes: expected at least {shape.block_bytes:,}, the size of a block, got"
            f" {cache.host_kv_bytes:,}",
            "host_kv_bytes",
        )
    return num_blocks


def _open_store(
    config: EngineConfig, checkpoint: Checkpoint, kv_size: KVSize, ops: Ops, name: str
) -> BlockStore | None:
    cache = config.cache
    if cache.disk_kv_path is None:
        return None
    longest = kv_size.max_model_len
    print_of = fingerprint(checkpoint, config.model, kv_size.shape, ops, longest, __version__, name)
    num_bytes = DISK_BYTES if cache.disk_kv_bytes is None else cache.disk_kv_bytes
    if num_bytes < kv_size.shape.block_bytes:
        raise ConfigError(
            f"--disk-kv-bytes: expected at least {kv_size.shape.block_bytes:,}, the size of a"
            f" block, got {num_bytes:,}",
            "disk_kv_bytes",
        )
    try:
        return BlockStore.open(cache.disk_kv_path, print_of, num_bytes)
    except StoreError as error:
        log.warning("disk KV: %s; serving without a disk tier", error)
        return None

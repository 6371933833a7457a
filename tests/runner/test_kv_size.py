from __future__ import annotations

import re

import pytest

from octavo.config import CacheConfig
from octavo.errors import ConfigError
from octavo.runner.kv_size import Demand, human, size_kv
from octavo.runner.kv_storage import KVShape

SHAPE = KVShape(num_layers=4, num_kv_heads=2, head_dim=32, block_size=16, dtype="float16")
BLOCK = 16 * 1024  # 4 layers * 2 * 2 heads * 32 * 16 tokens * 2 bytes
GIB = 2**30


def demand(longest=2048, asked=None, seqs=8, free=GIB):
    return Demand(longest=longest, max_model_len=asked, max_num_seqs=seqs, free_bytes=free)


def test_bytes_of_a_block():
    assert SHAPE.block_bytes == BLOCK
    wide = KVShape(num_layers=4, num_kv_heads=2, head_dim=32, block_size=48, dtype="float32")
    assert wide.block_bytes == 6 * BLOCK


def test_default_is_half_of_the_free_memory():
    size = size_kv(SHAPE, CacheConfig(), demand(seqs=10**6))
    assert size.num_bytes == GIB // 2
    assert size.num_blocks == GIB // 2 // BLOCK - 1
    assert size.max_model_len == 2048


def test_default_is_no_more_than_could_ever_be_used():
    assert size_kv(SHAPE, CacheConfig(), demand()).num_blocks == 8 * 2048 // 16
    assert size_kv(SHAPE, CacheConfig(), demand(asked=100)).num_blocks == 8 * 7


def test_explicit_sizes():
    by_blocks = size_kv(SHAPE, CacheConfig(num_kv_blocks=9), demand())
    assert (by_blocks.num_blocks, by_blocks.num_bytes) == (9, 10 * BLOCK)
    by_bytes = size_kv(SHAPE, CacheConfig(kv_cache_memory_bytes=10 * BLOCK + 5), demand())
    assert by_bytes.num_blocks == 9


def test_the_context_shrinks_to_the_pool_unless_asked_for():
    assert size_kv(SHAPE, CacheConfig(num_kv_blocks=9), demand()).max_model_len == 9 * 16
    assert size_kv(SHAPE, CacheConfig(num_kv_blocks=9), demand(asked=144)).max_model_len == 144


def test_a_context_the_pool_cannot_hold_is_refused_and_the_remedies_work():
    for cache in (CacheConfig(num_kv_blocks=9), CacheConfig(kv_cache_memory_bytes=10 * BLOCK)):
        with pytest.raises(
            ConfigError, match=r"145 tokens needs .* \(10 blocks\), the pool has .* \(9 blocks"
        ) as e:
            size_kv(SHAPE, cache, demand(asked=145))
        assert e.value.field == "max_model_len"
        flag, value = re.search(r"raise (--\S+) to at least (\d+)", str(e.value)).groups()
        field = flag[2:].replace("-", "_")
        assert getattr(cache, field) is not None  # the flag that was used is the one named
        assert (
            size_kv(SHAPE, CacheConfig(**{field: int(value)}), demand(asked=145)).max_model_len
            == 145
        )
        shorter = int(re.search(r"--max-model-len to (\d+)", str(e.value))[1])
        assert size_kv(SHAPE, cache, demand(asked=shorter)).max_model_len == shorter


def test_more_than_the_machine_has():
    with pytest.raises(
        ConfigError, match=r"200\.0 MiB of memory are free .* lower --num-kv-blocks"
    ):
        size_kv(SHAPE, CacheConfig(num_kv_blocks=10**6), demand(free=200 * 2**20))
    with pytest.raises(ConfigError, match="lower --kv-cache-memory-bytes"):
        size_kv(SHAPE, CacheConfig(kv_cache_memory_bytes=GIB), demand(free=2**20))


def test_less_than_a_block_and_its_spare():
    with pytest.raises(ConfigError, match=f"raise --kv-cache-memory-bytes to at least {2 * BLOCK}"):
        size_kv(SHAPE, CacheConfig(kv_cache_memory_bytes=2 * BLOCK - 1), demand())
    assert size_kv(SHAPE, CacheConfig(kv_cache_memory_bytes=2 * BLOCK), demand()).num_blocks == 1
    with pytest.raises(ConfigError, match="at least two blocks"):
        size_kv(SHAPE, CacheConfig(), demand(free=-5))


def test_the_line_at_start():
    size = size_kv(SHAPE, CacheConfig(num_kv_blocks=1000), demand(longest=600))
    assert str(size) == (
        "KV memory 15.6 MiB of 1.0 GiB free: 1,000 blocks of 16 = 16,000 tokens = 26 requests of 600 tokens"
    )
    one = size_kv(SHAPE, CacheConfig(num_kv_blocks=1), demand())
    assert str(one).endswith("1 blocks of 16 = 16 tokens = 1 request of 16 tokens")
    few = size_kv(SHAPE, CacheConfig(num_kv_blocks=150), demand(longest=1000))
    assert str(few).endswith("= 2.4 requests of 1,000 tokens")


def test_human():
    assert [human(n) for n in (0, 1023, 1536, 5 * 2**30, 2**50)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "1024.0 TiB",
    ]  # fmt: skip

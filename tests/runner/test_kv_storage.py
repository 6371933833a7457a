from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.kv.moves import Copy
from octavo.runner.kv_storage import KVShape, KVStorage
from tests.runner.fakes import ops, storage


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("block_size", [16, 48])
def test_sizes_agree_and_memory_starts_as_zeros(dtype, block_size):
    kv = storage(3, block_size, dtype)
    assert kv.array.nbytes == 3 * kv.shape.block_bytes
    assert kv.array.shape == (3 * block_size // 16, 2, 2, 1, 64)
    assert not kv.array.any()


@pytest.mark.parametrize("block_size", [16, 32])
def test_copies_run_in_order(block_size):
    kv = storage(6, block_size)
    n = block_size // 16
    for block in range(6):
        kv.array[block * n : (block + 1) * n] = block + 1
    kv.execute([Copy(0, 1), Copy(1, 2), Copy(5, 0)])  # the second sees what the first wrote
    got = [int(kv.array[b * n : (b + 1) * n].max()) for b in range(6)]
    assert got == [6, 1, 1, 4, 5, 6]
    assert all((kv.array[b * n : (b + 1) * n] == got[b]).all() for b in range(6))


def test_no_moves_and_unknown_moves():
    kv = storage()
    kv.execute([])
    with pytest.raises(TypeError, match="expected a Copy"):
        kv.execute(["demote"])  # type: ignore[list-item]


def test_memory_that_cannot_be_had():
    shape = KVShape(num_layers=2, num_kv_heads=1, head_dim=4, block_size=16, dtype="float32")
    with pytest.raises(ConfigError, match="cannot reserve"):
        KVStorage(ops, shape, 2**55)


def test_resident_memory_grows_with_use():
    def resident() -> int:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    before = resident()
    shape = KVShape(num_layers=16, num_kv_heads=4, head_dim=64, block_size=16, dtype="float16")
    kv = KVStorage(ops, shape, 4096)  # 1 GiB
    assert kv.array.nbytes == 2**30
    reserved = resident()
    assert reserved - before < 2**26
    kv.array[: 4096 // 4] = 1
    assert resident() - reserved > 2**27
    assert np.isfinite(kv.array[-1]).all()

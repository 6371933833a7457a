from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import StoreError
from octavo.kv.prefix import Key
from octavo.runner.block_file import record_bytes
from tests.runner.stores import BLOCK_BYTES, NUM_BYTES, block, fingerprint, key, open_store, read


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def test_what_was_written_is_read(store):
    store.write([(3, key(1), block(1)), (0, key(2, 5), block(2))])
    assert (read(store, 3, key(1)) == block(1)).all()
    assert (read(store, 0, key(2, 5)) == block(2)).all()
    assert store.entries() == [(3, key(1)), (0, key(2, 5))]


def test_only_the_exact_key_is_found(store):
    store.write([(3, key(1), block(1))])
    assert read(store, 3, key(2)) is None
    assert read(store, 3, key(1, 15)) is None
    assert read(store, 3, key(1)._replace(parent=key(2).parent)) is None
    assert read(store, 4, key(1)) is None


def test_a_slot_holds_what_was_written_last(store):
    store.write([(3, key(1), block(1))])
    store.write([(3, key(2), block(2)), (3, key(3), block(3))])
    assert read(store, 3, key(1)) is None
    assert (read(store, 3, key(3)) == block(3)).all()
    assert store.entries() == [(3, key(3))]
    store.drop(3)
    assert (store.entries(), read(store, 3, key(3))) == ([], None)


def test_entries_come_oldest_first_over_restarts(tmp_path):
    written = []
    for run in range(4):
        store = open_store(tmp_path)
        assert store.entries() == written
        for n in (7 - run, 20 + run):
            store.write([(n, key(n), block(n))])
            written.append((n, key(n)))
        store.close()


Op = st.tuples(
    st.sampled_from(["write", "write", "write", "drop", "restart"]),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=5),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ops=st.lists(Op, max_size=25))
def test_it_is_a_dict(tmp_path_factory, ops):
    path = tmp_path_factory.mktemp("store")
    store = open_store(path)
    model: dict[int, Key] = {}
    try:
        for what, pairs in ops:
            if what == "write":
                store.write([(slot, key(n), block(n)) for slot, n in pairs])
                for slot, n in pairs:
                    model.pop(slot, None)
                    model[slot] = key(n)
            elif what == "drop":
                store.drop(*[slot for slot, _ in pairs])
                for slot, _ in pairs:
                    model.pop(slot, None)
            else:
                store.close()
                store = open_store(path)
            assert store.entries() == list(model.items())
            for slot in range(10):
                for n in {n for _, n in pairs}:
                    got = read(store, slot, key(n))
                    assert (got is not None) == (model.get(slot) == key(n))
                    assert got is None or (got == block(n)).all()
    finally:
        store.close()


def test_a_full_store_is_replaced_again_and_again_within_its_budget(tmp_path):
    store = open_store(tmp_path, num_bytes=64 * record_bytes(BLOCK_BYTES, 16))
    assert store.num_slots == 64
    rng = np.random.default_rng(0)
    held = {}
    for _ in range(40):
        slots = [int(s) for s in rng.permutation(64)[:16]]
        names = rng.integers(0, 1000, 16).tolist()
        store.write([(s, key(n), block(n)) for s, n in zip(slots, names, strict=True)])
        held.update(zip(slots, names, strict=True))
    assert dict(store.entries()) == {slot: key(n) for slot, n in held.items()}
    assert all((read(store, slot, key(n)) == block(n)).all() for slot, n in held.items())
    assert store.folder.data.stat().st_size < 2 * 64 * 12288
    store.close()


def test_a_budget_below_one_block(tmp_path):
    with pytest.raises(StoreError, match="--disk-kv-bytes: expected at least 12,"):
        open_store(tmp_path, num_bytes=10_000)


def test_slots_beyond_a_smaller_budget_are_gone(tmp_path):
    store = open_store(tmp_path)
    last = store.num_slots - 1
    store.write([(0, key(1), block(1)), (last, key(2), block(2))])
    store.close()
    store = open_store(tmp_path, num_bytes=NUM_BYTES - 50_000)
    assert store.num_slots <= last
    assert store.entries() == [(0, key(1))]
    store.close()
    store = open_store(tmp_path)
    assert store.entries() == [(0, key(1))]
    store.close()


def test_a_store_far_beyond_a_smaller_budget_is_emptied(tmp_path, caplog):
    store = open_store(tmp_path, num_bytes=100 << 20, block_bytes=1 << 20)
    store.write([(slot, key(slot), block(slot, 1 << 20)) for slot in range(80)])
    store.close()
    store = open_store(tmp_path, num_bytes=2 << 20, block_bytes=1 << 20)
    assert store.entries() == []
    assert store.folder.data.stat().st_size < 1 << 20
    assert "more than --disk-kv-bytes allows" in caplog.text
    store.close()


def test_models_share_a_directory_and_never_a_block(tmp_path):
    first, second = open_store(tmp_path, "first"), open_store(tmp_path, "second")
    first.write([(0, key(1), block(1))])
    assert second.entries() == []
    assert read(second, 0, key(1)) is None
    first.close()
    second.close()


def test_another_models_folder_under_this_ones_name(tmp_path):
    other = open_store(tmp_path, "other")
    other.write([(0, key(1), block(1))])
    other.close()
    mine = tmp_path / fingerprint("mine").digest[:16]
    other.folder.path.rename(mine)
    with pytest.raises(StoreError, match="expected blocks of mine, found those of other"):
        open_store(tmp_path, "mine")
    # Even with the label forged, the checksums are another model's.
    other.folder.path = mine
    other.folder.write_about(fingerprint("mine"))
    store = open_store(tmp_path, "mine")
    assert store.entries() == [(0, key(1))]
    assert read(store, 0, key(1)) is None
    store.close()


def test_closed_means_closed(store):
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.entries()

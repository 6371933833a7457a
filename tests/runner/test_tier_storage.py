from __future__ import annotations

import random

import numpy as np
import pytest

from octavo.errors import ConfigError, StoreError
from octavo.kv.moves import Copy, Demote, MoveOutcome, Place, Promote, Tier
from octavo.runner.disk_io import DiskIO
from octavo.runner.kv_storage import KVShape, KVStorage
from octavo.runner.tier_storage import HostPool, TierStorage
from tests.runner.fakes import ops
from tests.runner.stores import key, open_store

SHAPE = KVShape(num_layers=2, num_kv_heads=1, head_dim=4, block_size=32, dtype="float16")
BYTES = SHAPE.block_bytes


def fill(tiers: TierStorage, block: int, n: int) -> None:
    tiers.device.rows[block] = content(n)


def content(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, BYTES, dtype=np.uint8)


def device(block: int) -> Place:
    return Place(Tier.DEVICE, block)


def host(slot: int) -> Place:
    return Place(Tier.HOST, slot)


def disk(slot: int) -> Place:
    return Place(Tier.DISK, slot)


@pytest.fixture
def make(tmp_path):
    made = []

    def make(num_blocks=8, num_host=8, on_disk=True, queue_bytes=1 << 20) -> TierStorage:
        store = open_store(tmp_path / str(len(made)), block_bytes=BYTES) if on_disk else None
        made.append(
            TierStorage(
                KVStorage(ops, SHAPE, num_blocks),
                HostPool(SHAPE, num_host) if num_host else None,
                DiskIO(store, queue_bytes=queue_bytes) if store else None,
            )
        )
        return made[-1]

    yield make
    for tiers in made:
        tiers.close()


def run_out(tiers: TierStorage) -> MoveOutcome:
    """All that still comes of earlier moves."""
    total = MoveOutcome()
    while tiers.disk.num_pending:
        outcome = tiers.execute([], wait=10.0)
        total.arrived += outcome.arrived
        total.missing += outcome.missing
        total.lost += outcome.lost
        total.seconds_per_block = outcome.seconds_per_block
    return total


def test_down_and_up_again(make):
    tiers = make()
    for block in range(4):
        fill(tiers, block, block)
    down = [Demote(device(b), host(7 - b), key(b)) for b in range(4)]
    further = [Demote(host(7 - b), disk(10 + b), key(b)) for b in range(2)]
    straight = [Demote(device(b), disk(20 + b), key(b)) for b in range(4)]
    assert tiers.execute([*down, *further, *straight]) == MoveOutcome()
    assert tiers.can_save
    tiers.disk.flush(10)
    tiers.device.array[:] = 0
    from_host = [Promote(host(7 - b), b, key(b)) for b in range(2)]
    from_disk = [Promote(disk(10), 2, key(0)), Promote(disk(23), 3, key(3))]
    first = tiers.execute([*from_host, *from_disk])
    later = run_out(tiers)
    assert first.arrived + later.arrived == from_disk
    assert later.missing + later.lost + first.missing + first.lost == []
    assert set(later.seconds_per_block or first.seconds_per_block) == {Tier.HOST, Tier.DISK}
    for block, n in enumerate((0, 1, 0, 3)):
        assert (tiers.device.rows[block] == content(n)).all()
    assert tiers.rates.num_blocks == {
        (Tier.DEVICE, Tier.HOST): 4,
        (Tier.HOST, Tier.DEVICE): 2,
        **tiers.disk.rates.num_blocks,
    }


def test_each_move_sees_what_those_before_it_wrote(make):
    tiers = make()
    for block in range(3):
        fill(tiers, block, block)
    tiers.execute(
        [
            Demote(device(0), host(0), key(0)),
            Demote(device(1), host(0), key(1)),  # the same slot again
            Promote(host(0), 0, key(1)),
            Copy(0, 2),
            Demote(device(2), host(1), key(1)),
            Copy(1, 0),
            Promote(host(1), 3, key(1)),
            Promote(host(0), 4, key(1)),
            Promote(host(0), 4, key(1)),
        ]
    )
    for block in (0, 1, 2, 3, 4):
        assert (tiers.device.rows[block] == content(1)).all()


def test_a_slot_that_holds_something_else_is_missing(make):
    tiers = make()
    fill(tiers, 0, 0)
    tiers.execute([Demote(device(0), host(0), key(0)), Demote(device(0), disk(0), key(0))])
    wrong = [
        Promote(host(0), 1, key(1)),
        Promote(host(3), 2, key(0)),
        Promote(disk(0), 3, key(1)),
        Promote(disk(9), 4, key(0)),
    ]
    outcome = tiers.execute([wrong[0], Promote(host(0), 5, key(0)), *wrong[1:]])
    outcome.missing += run_out(tiers).missing
    assert sorted(outcome.missing, key=lambda m: m.dst) == wrong
    assert not tiers.device.array[2:10].any()  # blocks of two tiles: nothing was written
    assert (tiers.device.rows[5] == content(0)).all()


def test_without_waiting_nothing_waits_and_with_waiting_it_comes(make):
    tiers = make(num_blocks=40, queue_bytes=4 * BYTES)
    for n in range(4):
        fill(tiers, n, n)
        tiers.execute([Demote(device(n), disk(n), key(n))])
        tiers.disk.flush(10)
    moves = [Promote(disk(n % 4), 4 + n, key(n % 4)) for n in range(36)]
    arrived = tiers.execute(moves).arrived
    rounds = 0
    while len(arrived) < 36:
        arrived += tiers.execute([], wait=10.0).arrived
        rounds += 1
    assert 8 <= rounds <= 10  # as many at once as there are buffers
    assert arrived == moves
    for n in range(36):
        assert (tiers.device.rows[4 + n] == content(n % 4)).all()


@pytest.mark.parametrize(
    "move",
    [
        Demote(device(0), host(0), key(0)),
        Promote(host(0), 0, key(0)),
        Demote(device(0), disk(0), key(0)),
        Demote(host(0), disk(0), key(0)),
        Promote(disk(0), 0, key(0)),
        "demote",
    ],
)
def test_moves_to_tiers_that_do_not_exist(make, move):
    tiers = make(num_host=0, on_disk=False)
    fill(tiers, 0, 0)
    with pytest.raises(TypeError, match="expected moves between tiers that exist, got"):
        tiers.execute([Copy(0, 1), move])
    assert not tiers.device.rows[1].any()
    assert tiers.execute([Copy(0, 1)]) == MoveOutcome()
    assert tiers.device.rows[1].any()
    assert not tiers.can_save


@pytest.mark.parametrize(
    "move",
    [
        Demote(disk(0), host(0), key(0)),
        Demote(host(0), device(0), key(0)),
        Promote(device(1), 0, key(0)),
    ],
)
def test_moves_that_make_no_sense(make, move):
    with pytest.raises(TypeError, match="expected moves between tiers that exist, got"):
        make().execute([move])


def test_host_memory_that_cannot_be_had():
    with pytest.raises(ConfigError, match="lower --host-kv-bytes"):
        HostPool(SHAPE, 2**55)


def test_a_failing_disk_is_no_error(make, monkeypatch, caplog):
    tiers = make()

    def fails(*args):
        raise StoreError("no such disk")

    monkeypatch.setattr(tiers.disk.store, "write", fails)
    monkeypatch.setattr(tiers.disk.store, "read", fails)
    down = [Demote(device(b), disk(b), key(b)) for b in range(8)]
    outcome = tiers.execute(down)
    tiers.disk.flush(10)
    outcome.lost += run_out(tiers).lost
    assert sorted(outcome.lost, key=lambda m: m.dst.slot) == down
    up = Promote(disk(1), 0, key(1))
    outcome = tiers.execute([up], wait=10.0)
    assert outcome.missing + run_out(tiers).missing == [up]
    assert len(caplog.records) == 1


class Model:
    """The tiers as dicts: contents of each place by number, keys of host and disk slots."""

    def __init__(self, num_blocks: int) -> None:
        self.device = dict.fromkeys(range(num_blocks), -1)
        self.host: dict[int, int] = {}
        self.disk: dict[int, int] = {}


@pytest.mark.parametrize("seed", range(10))
def test_random_lists_of_moves_against_dicts(make, seed):
    rng = random.Random(seed)
    tiers = make(num_blocks=12, num_host=6)
    model = Model(12)
    pending: dict[int, tuple[Promote, int | None]] = {}  # by block: what must come
    fresh = 0

    def settle(outcome: MoveOutcome, missing: list[Promote]) -> None:
        assert not outcome.lost
        for move in outcome.arrived:
            promised, n = pending.pop(move.dst)
            assert promised is move
            assert n is not None
            model.device[move.dst] = n
        gone = [m for m in outcome.missing if m.src.tier is Tier.DISK]
        for move in gone:
            assert pending.pop(move.dst) == (move, None)
        assert [m for m in outcome.missing if m.src.tier is Tier.HOST] == missing

    for _ in range(120):
        moves, missing = [], []
        for _ in range(rng.randrange(12)):
            what = rng.randrange(7)
            free = [b for b in model.device if b not in pending]
            if len(free) < 3:
                continue
            a, b = rng.sample(free, 2)
            n = model.device[a]
            slot = rng.randrange(6)
            if what == 0:
                moves.append(Copy(a, b))
                model.device[b] = n
            elif what in (1, 2) and n >= 0:
                moves.append(Demote(device(a), host(slot), key(n)))
                model.host[slot] = n
            elif what == 3 and n >= 0:
                moves.append(Demote(device(a), disk(slot), key(n)))
                model.disk[slot] = n
            elif what == 4 and slot in model.host:
                n = model.host[slot]
                moves.append(Demote(host(slot), disk(slot + 6), key(n)))
                model.disk[slot + 6] = n
            elif what == 5:
                n = model.host.get(slot, 0)
                n += rng.random() < 0.2
                move = Promote(host(slot), a, key(n))
                moves.append(move)
                if model.host.get(slot) == n:
                    model.device[a] = n
                else:
                    missing.append(move)
            elif what == 6:
                slot = rng.randrange(12)
                n = model.disk.get(slot, 0)
                n += rng.random() < 0.2
                move = Promote(disk(slot), a, key(n))
                moves.append(move)
                pending[a] = (move, n if model.disk.get(slot) == n else None)
        settle(tiers.execute(moves, wait=rng.choice([0.0, 0.0, 0.001])), missing)
        for block, n in model.device.items():
            if block not in pending and n >= 0:
                assert (tiers.device.rows[block] == content(n)).all()
        free = [b for b in model.device if b not in pending]
        if free:
            fresh += 1
            model.device[free[0]] = fresh % 20
            fill(tiers, free[0], fresh % 20)
    settle(run_out(tiers), [])
    assert not pending

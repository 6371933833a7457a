"""Compiled forward passes: the same bits as op by op, for every family, format, step and number of threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from octavo.models.decoder import Model
from octavo.models.loader import load_model
from octavo.ops.base import F32, Batch, Ops
from octavo.ops.reference import ReferenceOps
from tests.cpu.paged import AVAILABLE, native
from tests.models.drive import Run, make_batch, new_kv
from tests.models.memory_checkpoint import MemoryCheckpoint, make_spec

from octavo.ops.cpu import CpuOps  # isort: skip  (tests.cpu.paged skips where there is none)

RNG = np.random.default_rng(5)
TOKENS = [int(t) for t in RNG.integers(0, 80, 300)]

STEPS: dict[str, tuple[list[Run], list[int]]] = {
    "one": ([Run(TOKENS[:1], 0, [3])], [0]),
    "chunk-inside-a-prompt": ([Run(TOKENS[:50], 0, [0, 1, 2, 3])], []),
    "prompt": ([Run(TOKENS[:83], 0, [7, 2, 0, 1, 5, 4])], [82]),
    "all-rows": ([Run(TOKENS[:39], 0, [7, 2, 0])], list(range(39))),
    "rows-twice-and-back": ([Run(TOKENS[:5], 0, [0])], [4, 0, 4, 3, 3, 3, 1, 2]),
    "company": (
        [Run([t], 0, [i]) for i, t in enumerate(TOKENS[:17])] + [Run(TOKENS[:30], 0, [20, 19])],
        [*range(17), 46],
    ),
}


def model_of(family: str, format: str, threads: int = 2, isa: str = "", **changes: object) -> Model:
    checkpoint = MemoryCheckpoint(make_spec(family, **changes), format)
    return load_model(checkpoint, CpuOps(threads, isa), max_model_len=checkpoint.spec.max_position)


def assert_same(model: Model, runs: list[Run], rows: list[int], dtype: str = "float16") -> None:
    one, other = new_kv(model, 24, dtype), new_kv(model, 24, dtype)
    by_op = model.decode(model.ops, make_batch(model.ops, one, runs, rows))
    compiled = model.hidden(make_batch(model.ops, other, runs, rows))
    assert compiled.dtype == np.float32
    assert np.isfinite(compiled).all()
    np.testing.assert_array_equal(compiled, by_op)
    np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("format", ["F32", "BF16", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_same_bits_as_op_by_op(family: str, format: str, step: str, dtype: str) -> None:
    assert_same(model_of(family, format), *STEPS[step], dtype)


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("format", ["F16", "Q4_0", "Q5_1"])
def test_same_bits_on_all_threads_and_instruction_sets(format: str, threads: int, isa: str) -> None:
    model = model_of("qwen3", format, threads, isa, mlp_bias=True, o_bias=True, qkv_bias=True)
    for runs, rows in STEPS.values():
        assert_same(model, runs, rows)


@pytest.mark.parametrize("rows", [[5, 10], [4, 5, 8, 9, 10], [10, 0, 5, 5, 1], [2], []])
@pytest.mark.parametrize("window", [None, 100])
def test_rows_that_get_no_logits_beside_some_that_do(rows: list[int], window: int | None) -> None:
    """Their last attention is left out; the first 256 tokens of both sequences lie in common tiles."""
    model = model_of("llama", "Q8_0", sliding_window=window, max_position=512)
    prefix = list(range(16))
    steps = [
        ([Run(TOKENS[:256], 0, prefix)], [255]),
        (
            [Run(TOKENS[256:262], 256, [*prefix, 20]), Run(TOKENS[280:285], 256, [*prefix, 19])],
            rows,
        ),
    ]
    one, other = new_kv(model, 24, "float16"), new_kv(model, 24, "float16")
    for runs, wanted in steps:
        by_op = model.decode(model.ops, make_batch(model.ops, one, runs, wanted))
        compiled = model.hidden(make_batch(model.ops, other, runs, wanted))
        np.testing.assert_array_equal(compiled, by_op)
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("inner", [32, 96, 288, 8192])  # 8192: rows in several blocks
@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 17, 31, 32, 33, 61, 130])
def test_all_numbers_of_rows_and_odd_sizes(inner: int, count: int) -> None:
    model = model_of("llama", "Q4_1", intermediate_size=inner, mlp_bias=True)
    tiles = list(range(-(-count // 16)))
    assert_same(model, [Run(TOKENS[:count], 0, tiles)], [count - 1])


@pytest.mark.parametrize("inner", [8, 40, 100])
def test_float_maps_whose_outputs_fill_no_vector(inner: int) -> None:
    model = model_of("llama", "F32", intermediate_size=inner)
    for runs, rows in STEPS.values():
        assert_same(model, runs, rows)


@pytest.mark.parametrize(
    ("first", "second", "down"),
    [
        ("Q4_1", "Q6_K", "Q8_0"),
        ("F16", "Q4_0", "Q4_K"),
        ("Q5_0", "F32", "BF16"),
        ("Q5_K", "Q5_K", "F32"),
    ],
)
@pytest.mark.parametrize("rows", [1, 5, 21, 70])
def test_formats_mixed_in_a_gated_pair(first: str, second: str, down: str, rows: int) -> None:
    from tests.cpu.linear_cases import random_weight

    ops, width = CpuOps(2), 256
    halves = [random_weight(first, 512, width, 1), random_weight(second, 512, width, 2)]
    gate_up, after = (
        ops.prepare_linear(halves),
        ops.prepare_linear([random_weight(down, width, 512, 3)]),
    )
    table = ops.prepare_table(random_weight("F32", 80, width, 4))
    weight = np.linspace(0.5, 1.5, width, dtype=np.float32)

    def forward(ops: Ops, batch: Batch) -> F32:
        residual = ops.take_rows(ops.embedding(table, batch.token_ids), batch.logits_rows)
        x = ops.rms_norm(residual, weight, 1e-5)
        x = ops.linear(ops.silu_mul(ops.linear(x, gate_up)), after)
        return ops.rms_norm(x, weight, 1e-5, residual)

    batch = token_batch(ops, TOKENS[:rows])
    np.testing.assert_array_equal(ops.compile(forward)(batch), forward(ops, batch))


def token_batch(ops: Ops, token_ids: list[int]) -> Batch:
    """Every row alone, with logits; no layers in the KV memory."""
    kv = np.zeros((1, 0, 2, 1, 128), np.float16)
    return make_batch(ops, kv, [Run([t], 0, [0]) for t in token_ids], range(len(token_ids)))


def test_layers_share_a_few_buffers_and_fold_small_ops() -> None:
    model = model_of("llama", "Q4_1", num_layers=5)
    program = model.hidden._native  # type: ignore[attr-defined]
    assert program.num_buffers <= 4
    # norm + qkv, rope, attention, o, norm + gate_up + down; embedding, two times take_rows, the last norm
    assert program.num_instructions == 5 * 5 + 4
    assert program.width == 64


def test_values_that_are_read_twice_are_kept() -> None:
    ops = CpuOps(2)
    checkpoint = MemoryCheckpoint(make_spec("llama"), "Q4_1")
    table = ops.prepare_table(checkpoint.tensor("model.embed_tokens.weight"))
    square = ops.prepare_linear([checkpoint.tensor("model.layers.0.self_attn.o_proj.weight")])
    weight = np.linspace(0.5, 1.5, 64, dtype=np.float32)

    def forward(ops: Ops, batch: Batch) -> F32:
        x = ops.rms_norm(ops.embedding(table, batch.token_ids), weight, 1e-5)
        y = ops.linear(x, square)  # not folded: x is needed again
        z = ops.rms_norm(y, weight, 1e-5, x)
        return ops.take_rows(
            ops.linear(ops.rms_norm(z, weight, 1e-5, x), square), batch.logits_rows
        )

    batch = token_batch(ops, TOKENS[:20])
    np.testing.assert_array_equal(ops.compile(forward)(batch), forward(ops, batch))


def test_rows_with_infinities_stay_alone() -> None:
    model = model_of("llama", "Q4_1")
    kv, clean = new_kv(model, 24, "float16"), new_kv(model, 24, "float16")
    runs, rows = STEPS["company"]
    model.hidden(make_batch(model.ops, kv, runs, rows))
    model.hidden(make_batch(model.ops, clean, runs, rows))
    kv[0] = np.nan  # the tile of the first run
    following = [Run([9], 1, [i]) for i in range(17)]
    batch = make_batch(model.ops, kv, following, range(17))
    got = model.hidden(batch)
    expected = model.hidden(make_batch(model.ops, clean, following, range(17)))
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1:], expected[1:])


# ---- what is refused


def damaged(batch: Batch, **changes: object) -> Batch:
    fields = {name: getattr(batch, name) for name in Batch.__slots__}
    return Batch(**(fields | changes))


I32 = np.int32


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"token_ids": np.array([1, 80, 2], I32)}, IndexError, "token id 80 at position 1"),
        ({"token_ids": np.array([-1, 1, 2], I32)}, IndexError, "token id -1"),
        ({"token_ids": np.array([1, 2, 3])}, ValueError, "token_ids: expected C-contiguous int32"),
        ({"positions": np.array([0, 1, 256], I32)}, ValueError, "positions from 0 to 255, got 256"),
        ({"positions": np.array([0, 1], I32)}, ValueError, r"positions: expected .*\[3\]"),
        ({"slots": np.array([0, 1, 32], I32)}, ValueError, "slots from 0 to 31, got 32"),
        ({"slots": np.array([[0, 1, 2]], I32)}, ValueError, "slots: expected"),
        ({"logits_rows": np.array([3], I32)}, ValueError, "logits_rows from 0 to 2, got 3"),
        ({"logits_rows": np.array([-1], I32)}, ValueError, "logits_rows from 0 to 2, got -1"),
        ({"kv": np.zeros((2, 1, 2, 2, 256), np.float16)}, ValueError, "of 2 layers, got 1"),
        ({"kv": np.zeros((2, 2, 2, 2, 128), np.float16)}, ValueError, "kv: expected"),
        ({"kv": np.zeros((2, 2, 2, 2, 256), np.float64)}, ValueError, "kv: expected"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(changes, error, message) -> None:  # type: ignore[no-untyped-def]
    model = model_of("llama", "Q4_1")
    good = make_batch(model.ops, new_kv(model, 2, "float16"), [Run([1, 2, 3], 0, [1])], [2])
    expected = model.hidden(good)
    with pytest.raises(error, match=message):
        model.hidden(damaged(good, **changes))
    np.testing.assert_array_equal(model.hidden(good), expected)  # and it goes on


def test_plans_that_do_not_fit_are_refused() -> None:
    model = model_of("llama", "Q4_1")
    kv = new_kv(model, 2, "float16")
    good = make_batch(model.ops, kv, [Run([1, 2, 3], 0, [1])], [2])
    longer = make_batch(model.ops, kv, [Run([1, 2, 3, 4], 0, [1])], [2])
    with pytest.raises(ValueError, match="attention plan of 3 rows, got 4"):
        model.hidden(damaged(good, attention=longer.attention))
    outside = make_batch(model.ops, kv, [Run([1, 2, 3], 0, [2])], [2])
    with pytest.raises(ValueError, match="tile ids below 2"):
        model.hidden(damaged(outside, slots=good.slots))
    with pytest.raises(TypeError):
        model.hidden(damaged(good, attention=None))


def small_pass(use: object):  # type: ignore[no-untyped-def]
    """A pass that does `use(ops, batch, x)` with an array of the step."""
    ops = CpuOps(1)
    table = ops.prepare_table(
        MemoryCheckpoint(make_spec("llama")).tensor("model.embed_tokens.weight")
    )
    return lambda: ops.compile(
        lambda ops, batch: use(ops, batch, ops.embedding(table, batch.token_ids))
    )  # type: ignore[operator]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda ops, batch, x: x[batch.logits_rows], TypeError, "only through ops"),
        (lambda ops, batch, x: x + 1, TypeError, "only through ops"),
        (lambda ops, batch, x: np.ones(3, np.float32) * x, TypeError, "only through ops"),
        (lambda ops, batch, x: np.asarray(x), TypeError, "only through ops"),
        (lambda ops, batch, x: x.shape, TypeError, "only through ops"),
        (lambda ops, batch, x: len(batch.logits_rows), TypeError, "only through ops"),
        (lambda ops, batch, x: x, ValueError, "use take_rows"),
        (lambda ops, batch, x: np.zeros((1, 64), np.float32), TypeError, "result: expected an array made"),
        (lambda ops, batch, x: ops.take_rows(x, batch.slots), TypeError, "only take batch.logits_rows"),
        (lambda ops, batch, x: ops.take_rows(batch.kv, batch.logits_rows), TypeError, "array of the batch"),
        (lambda ops, batch, x: ops.rms_norm(x, np.ones(63, np.float32), 1e-5), ValueError, "of width 64"),
        (lambda ops, batch, x: ops.rms_norm(x, np.ones(64), 1e-5), ValueError, "float32"),
        (lambda ops, batch, x: ops.rms_norm(x, np.ones(64, np.float32), 1e-5, x), ValueError, "residual"),
        (lambda ops, batch, x: ops.prepare_vector(None), TypeError, "not part of a forward pass"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_says_so(use, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        small_pass(use)()


def test_a_native_program_refuses_what_does_not_fit() -> None:
    program = native.Program(native.Context(1))
    with pytest.raises(ValueError, match="no value 0"):
        program.silu_mul(0)
    x = program.take_logits_rows(program.embedding("F32", np.zeros((4, 256), np.uint8), 64))
    with pytest.raises(ValueError, match="all rows of the step"):
        program.paged_attention(x, 0, 4, 2, 16, 0.25, None)
    program.finish(x)
    with pytest.raises(ValueError, match="finished"):
        program.silu_mul(x)
    with pytest.raises(ValueError, match="finished"):
        program.finish(x)


def test_a_program_holds_on_to_what_it_was_recorded_with() -> None:
    context = native.Context(1)
    program = native.Program(context)
    x = program.embedding("F32", np.full((4, 64), 1, np.float32).view(np.uint8), 64)
    x = program.rms_norm(program.take_logits_rows(x), np.full(64, 3, np.float32), 0.0, None)
    program.finish(x)
    del context
    filler = [np.full((4, 64), 9, np.float32) for _ in range(50)]
    batch = token_batch(CpuOps(1), [0, 3])
    out = np.empty((2, 64), np.float32)
    program.run(batch.token_ids, batch.positions, batch.slots, batch.attention, batch.logits_rows, batch.kv, out)  # fmt: skip
    np.testing.assert_array_equal(out, 3)
    assert filler[0][0, 0] == 9


def test_calls_from_several_threads_take_turns() -> None:
    model = model_of("llama", "Q4_1")
    steps = [STEPS["prompt"], STEPS["company"], STEPS["one"]]
    expected = [
        model.hidden(make_batch(model.ops, new_kv(model, 24, "float16"), *s)) for s in steps
    ]
    wrong: list[str] = []

    def work(index: int) -> None:
        for _ in range(20):
            batch = make_batch(model.ops, new_kv(model, 24, "float16"), *steps[index])
            if not np.array_equal(model.hidden(batch), expected[index]):
                wrong.append(f"step {index}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_against_the_reference() -> None:
    checkpoint = MemoryCheckpoint(make_spec("qwen3"), "F32")
    reference = load_model(checkpoint, ReferenceOps(), max_model_len=256)
    model = load_model(checkpoint, CpuOps(2), max_model_len=256)
    for runs, rows in STEPS.values():
        kv = new_kv(reference, 24, "float32")
        expected = reference.hidden(make_batch(reference.ops, kv, runs, rows))
        got = model.hidden(make_batch(model.ops, new_kv(model, 24, "float32"), runs, rows))
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)

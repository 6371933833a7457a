"""GGUF files that break their own format: each a clear error that names the file and the offset or tensor."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_models
from octavo.errors import (
    MalformedModelError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from octavo.models.checkpoint import Checkpoint, open_checkpoint
from octavo.models.gguf_file import read_gguf

SIZES = {"vocab_size": 259, "hidden": 32, "heads": 2, "kv_heads": 1, "ffn": 32, "layers": 1}
Q = b"blk.0.attn_q.weight"
HUGE = 2**63 + 12345

Change = Callable[[bytearray], bytes]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "good.gguf"
    return tiny_models.make_gguf(path, "llama", "Q4_1", **SIZES).read_bytes()


def load_all(path: Path) -> Checkpoint:
    """Open the file and read every tensor, as loading a model does."""
    checkpoint = open_checkpoint(path)
    for name in checkpoint.tensors:
        checkpoint.tensor(name)
    return checkpoint


def put(fmt: str, offset: int, value: int) -> Change:
    def change(data: bytearray) -> bytes:
        struct.pack_into(fmt, data, offset, value)
        return bytes(data)

    return change


def put_after(text: bytes, fmt: str, offset: int, value: int) -> Change:
    """Write a number so many bytes after the end of the first `text`."""

    def change(data: bytearray) -> bytes:
        struct.pack_into(fmt, data, data.index(text) + len(text) + offset, value)
        return bytes(data)

    return change


def replace(old: bytes, new: bytes) -> Change:
    def change(data: bytearray) -> bytes:
        assert old in data
        return bytes(data).replace(old, new, 1)

    return change


def cut(at: int) -> Change:
    return lambda data: bytes(data[:at])


def swap_shape(data: bytearray) -> bytes:
    """ffn_down becomes [16, 64]: as many numbers, another shape."""
    at = data.index(b"blk.0.ffn_down.weight") + len(b"blk.0.ffn_down.weight") + 4
    struct.pack_into("<QQ", data, at, 64, 16)
    return bytes(data)


# After a tensor's name: uint32 dimensions, uint64 each, uint32 type, uint64 offset.
DIMS, FIRST, TYPE, OFFSET = 0, 4, 20, 24
BLOCKS = b"llama.block_count"

CASES: dict[str, tuple[Change, type[ModelError], str]] = {
    "empty": (cut(0), MalformedModelError, "at offset 0: expected 4 bytes of magic"),
    "wrong magic": (put("<I", 0, 0x46554747 ^ 1), MalformedModelError, "magic b'GGUF', got b'FGUF'"),
    "cut in the counts": (cut(20), MalformedModelError, "at offset 8: 12 tensors cannot be.*truncated"),
    "cut in the metadata": (cut(600), MalformedModelError, "at offset .*truncated"),
    "cut in a string list": (cut(3000), MalformedModelError, "string .* of tokenizer.ggml.tokens leaves|cannot be"),
    "cut in the data": (lambda d: bytes(d[:-64]), MalformedModelError, "tensor '.*': its .* bytes at offset .* leave the file"),
    "version 1": (put("<I", 4, 1), UnsupportedModelError, "GGUF version 1 is not supported; supported: .*2 and 3"),
    "version 99": (put("<I", 4, 99), UnsupportedModelError, "at offset 4: GGUF version 99"),
    "big endian": (put(">I", 4, 3), UnsupportedModelError, "big-endian"),
    "huge number of tensors": (put("<Q", 8, HUGE), MalformedModelError, "at offset 8: .* tensors cannot be"),
    "too many tensors": (put("<Q", 8, 500), MalformedModelError, "at offset .*(dimensions|truncated)"),
    "huge number of keys": (put("<Q", 16, HUGE), MalformedModelError, "at offset 16: .* metadata keys cannot be"),
    "huge key": (put("<Q", 24, HUGE), MalformedModelError, "at offset 24: expected at most 65535 bytes of a metadata key"),
    "huge string": (put_after(b"general.architecture", "<Q", 4, HUGE), MalformedModelError, "bytes of general.architecture, but the file ends"),
    "huge array": (put_after(b"tokenizer.ggml.tokens", "<Q", 8, 2**40), MalformedModelError, "1099511627776 strings in tokenizer.ggml.tokens cannot be"),
    "huge string in an array": (put_after(b"tokenizer.ggml.tokens", "<Q", 16, HUGE), MalformedModelError, "string 0 of tokenizer.ggml.tokens leaves the file"),
    "not UTF-8": (replace(b"gpt-2", b"gp\xff\xfe2"), MalformedModelError, "expected UTF-8 in tokenizer.ggml.pre"),
    "unknown value type": (put_after(BLOCKS, "<I", 0, 77), MalformedModelError, "llama.block_count: unknown value type 77"),
    "key twice": (replace(b"tokenizer.ggml.bos_token_id", b"tokenizer.ggml.eos_token_id"), MalformedModelError, "metadata key 'tokenizer.ggml.eos_token_id' appears twice"),
    "key missing": (replace(b"llama.embedding_length", b"llama.embedding_lengtX"), MalformedModelError, "embedding_length is missing"),
    "no layers": (put_after(BLOCKS, "<I", 4, 0), MalformedModelError, "block_count: expected a whole number from 1 to 1024, got 0"),
    "layers too many": (put_after(BLOCKS, "<I", 4, 2), MalformedModelError, "tensor 'model.layers.1.* is missing"),
    "heads do not divide": (put_after(b"llama.attention.head_count_kv", "<I", 4, 3), MalformedModelError, "2 heads and 3 key/value heads"),
    "architecture": (replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba"), UnsupportedModelError, "architecture 'mamba' is not supported; supported in GGUF files: llama, qwen2, qwen3"),
    "no dimensions": (put_after(Q, "<I", DIMS, 0), MalformedModelError, "expected 1 to 4 dimensions, got 0"),
    "many dimensions": (put_after(Q, "<I", DIMS, 2**31), MalformedModelError, "expected 1 to 4 dimensions"),
    "zero rows": (put_after(Q, "<Q", FIRST, 0), MalformedModelError, "impossible dimensions"),
    "huge row": (put_after(Q, "<Q", FIRST, 2**39), MalformedModelError, "leave the file"),
    "row of half a block": (put_after(Q, "<Q", FIRST, 48), MalformedModelError, "multiple of 32 elements for Q4_1, got 48"),
    "wrong shape": (swap_shape, MalformedModelError, r"tensor 'model.layers.0.mlp.down_proj.weight': expected shape \[32, 32\], got \[16, 64\]"),
    "type of another project": (put_after(Q, "<I", TYPE, 16), UnsupportedModelError, "'blk.0.attn_q.weight' has type IQ2_XXS, which is not supported; supported: F32 F16 BF16 Q8_0"),
    "type of nobody": (put_after(Q, "<I", TYPE, 4711), UnsupportedModelError, "has type number 4711"),
    "offset outside": (put_after(Q, "<Q", OFFSET, 2**40), MalformedModelError, "'blk.0.attn_q.weight': its .* leave the file"),
    "offset that wraps": (put_after(Q, "<Q", OFFSET, 2**64 - 32), MalformedModelError, "leave the file"),
    "misaligned": (put_after(Q, "<Q", OFFSET, 33), MalformedModelError, "multiple of 32, got 33"),
    "overlap": (put_after(Q, "<Q", OFFSET, 0), MalformedModelError, "tensors '.*' and '.*' overlap"),
    "tensor twice": (replace(b"blk.0.attn_k.weight", Q), MalformedModelError, "tensor 'blk.0.attn_q.weight' appears twice"),
    "tensor missing": (replace(b"blk.0.ffn_down.weight", b"blk.7.ffn_down.weight"), MalformedModelError, "tensor 'model.layers.0.mlp.down_proj.weight' is missing"),
    "tensor of a variant": (replace(b"blk.0.ffn_down.weight", b"blk.0.ffn_dowm.weight"), UnsupportedModelError, "tensor 'blk.0.ffn_dowm.weight' is not a part that Octavo knows"),
    "no embedding": (replace(b"token_embd.weight", b"blk.9.ffn_up.bias"), MalformedModelError, "token_embd.weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_names_what_is_wrong(good: bytes, tmp_path: Path, case: str) -> None:
    change, error, message = CASES[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(change(bytearray(good)))
    with pytest.raises(error, match=message) as caught:
        load_all(path)
    assert str(path) in str(caught.value)


def test_the_file_itself_is_good(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(good)
    assert load_all(path).spec.num_layers == 1


def write(path: Path, **metadata: object) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in metadata.items():
        writer.add_key_value(key.replace("__", "."), value, gguf.GGUFValueType.get_type(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_alignment(tmp_path: Path) -> None:
    for bad in (0, 24, 2**30):
        with pytest.raises(
            MalformedModelError, match=rf"alignment: expected a power of two.*{bad}"
        ):
            read_gguf(write(tmp_path / "a.gguf", general__alignment=bad))


def test_parts_of_a_split_file(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"one of 3 parts.*llama-gguf-split --merge"):
        read_gguf(write(tmp_path / "s.gguf", split__count=3))


def test_arrays_nested_without_end(tmp_path: Path) -> None:
    key = b"deep"
    body = struct.pack("<IQ", 9, 1) * 5000
    header = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key)) + key + struct.pack("<I", 9)
    path = tmp_path / "deep.gguf"
    path.write_bytes(header + body)
    with pytest.raises(MalformedModelError, match="nested more than 4 deep"):
        read_gguf(path)


def test_rope_factors(tmp_path: Path) -> None:
    path = tiny_models.make_gguf(tmp_path / "r.gguf", "llama", rope=tiny_models.LLAMA3)
    good = path.read_bytes()
    factors = read_gguf(path).tensors["rope_freqs.weight"].data.tobytes()
    at = good.index(factors)
    for bad in (np.nan, np.inf, 0.0, -1.0):
        path.write_bytes(good[:at] + struct.pack("<f", bad) + good[at + 4 :])
        with pytest.raises(
            MalformedModelError, match=r"rope_freqs.weight': expected finite numbers"
        ):
            open_checkpoint(path)
    shorter = {**SIZES, "head_dim": 32, "rope": tiny_models.LLAMA3}
    data = tiny_models.make_gguf(path, "llama", **shorter).read_bytes()
    key = b"llama.rope.dimension_count"
    at = data.index(key) + len(key) + 4
    path.write_bytes(data[:at] + struct.pack("<I", 16) + data[at + 4 :])
    with pytest.raises(MalformedModelError, match="expected 8 rope frequency factors, got 16"):
        open_checkpoint(path)


def test_more_tokens_than_embeddings(good: bytes, tmp_path: Path) -> None:
    data = bytearray(good)
    for name in (b"token_embd.weight", b"\0output.weight"):
        struct.pack_into("<Q", data, data.index(name) + len(name) + 12, 258)
    path = tmp_path / "tokens.gguf"
    path.write_bytes(data)
    with pytest.raises(MalformedModelError, match=r"expected at most 258 tokens, .* got 259"):
        open_checkpoint(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"expected a model directory or a \.gguf file"):
        open_checkpoint(tmp_path / "nothing.gguf")


HEADER = 5000


@settings(max_examples=1000, deadline=None)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, HEADER),
            st.one_of(
                st.binary(min_size=1, max_size=1),
                st.sampled_from((0, 1, 2**16, 2**31, 2**32, HUGE, 2**64 - 1)).map(
                    lambda v: struct.pack("<Q", v)
                ),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    tensor_edits=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=2),
    end=st.one_of(st.none(), st.integers(0, 2 * HEADER)),
)
def test_damage_is_an_error_of_ours_or_harmless(
    good: bytes,
    tmp_path_factory: pytest.TempPathFactory,
    edits: list[tuple[int, bytes]],
    tensor_edits: list[tuple[int, int]],
    end: int | None,
) -> None:
    data = bytearray(good)
    for offset, value in edits:
        data[offset : offset + len(value)] = value
    for offset, byte in tensor_edits:
        data[good.index(Q) + offset] = byte
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    path.unlink(missing_ok=True)  # a new file: the old one may still be mapped
    path.write_bytes(bytes(data[:end]))
    message = str(path)
    try:
        load_all(path)
    except ModelError as error:
        message = str(error)
    assert str(path) in message

"""NaN and infinity, wherever they hide in a tensor, are found; bytes that only look like them are not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from octavo.errors import MalformedModelError
from octavo.models.formats import FORMATS, check_finite, row_bytes
from octavo.ops.base import WeightTensor

ROWS, COLUMNS = 5, 512
BITS = {
    "F32": [0x7FC00000, 0xFF800000, 0x7F800001],
    "F16": [0x7E00, 0x7C00, 0xFC00, 0xFC01],
    "BF16": [0x7FC0, 0x7F80, 0xFF80],
}
PLACES = [
    (name, offset, bits)
    for name, form in FORMATS.items()
    for offset in (form.scales or (0,))
    for bits in BITS.get(name, BITS["F16"])
]


def weight(type_name: str) -> WeightTensor:
    """Every byte 0xff, which is NaN to a float, except where the format's floats lie: those are large but finite."""
    form = FORMATS[type_name]
    num_bytes = row_bytes(type_name, COLUMNS)
    assert num_bytes is not None
    data = np.full((ROWS * num_bytes // form.block_bytes, form.block_bytes), 0xFF, np.uint8)
    largest = {"F32": b"\xff\xff\x7f\x7f", "BF16": b"\x7f\x7f"}.get(type_name, b"\xff\x7b")
    for offset in form.scales or (0,):
        data[:, offset : offset + len(largest)] = np.frombuffer(largest, np.uint8)
    return WeightTensor("w", (ROWS, COLUMNS), type_name, data.reshape(ROWS, num_bytes))


@pytest.mark.parametrize("type_name", FORMATS)
def test_the_largest_numbers_pass(type_name: str) -> None:
    check_finite(weight(type_name))


@pytest.mark.parametrize(("type_name", "offset", "bits"), PLACES)
def test_one_bad_number_is_named_with_its_place(type_name: str, offset: int, bits: int) -> None:
    form = FORMATS[type_name]
    per_row = COLUMNS // form.block
    for row, block in ((0, 0), (2, per_row // 2), (ROWS - 1, per_row - 1)):
        bad = weight(type_name)
        dtype = "<u4" if type_name == "F32" else "<u2"
        raw = np.array([bits], dtype).view(np.uint8)
        at = block * form.block_bytes + offset
        bad.data[row, at : at + raw.size] = raw
        message = f"file.gguf: tensor 'w': .*in row {row}, column {block * form.block};"
        with pytest.raises(MalformedModelError, match=message):
            check_finite(bad, "file.gguf")


def test_the_last_number_of_a_large_tensor() -> None:
    data = np.zeros((3, 4 * 200_001), np.uint8)
    large = WeightTensor("large", (3, 200_001), "F32", data)
    check_finite(large)
    data[2, -1] = 0x7F
    data[2, -2] = 0x80
    with pytest.raises(MalformedModelError, match=re.escape("row 2, column 200000")):
        check_finite(large)

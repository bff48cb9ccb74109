"""The digest of a value is what its docstring says, however the elements come."""

import hashlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle.digest import CHUNK, data_of, digest_of, digest_of_value, digest_of_values, digests_of_chunks
from milepost.tensor import DType, Piece, PiecewiseArray

BYTES = np.random.default_rng(0).integers(0, 256, 4 * CHUNK).astype(np.uint8).tobytes()


def by_definition(name, shape, data):
    """The digest as the documentation defines it, with nothing of milepost."""
    chunks = [hashlib.sha256(data[start : start + 65536]).digest() for start in range(0, len(data), 65536)]
    return hashlib.sha256(f"{name} {','.join(map(str, shape))}\n".encode() + b"".join(chunks)).hexdigest()


@pytest.mark.parametrize(
    "dtype", ["float32", "int8", "bool", "complex64", ml_dtypes.bfloat16, ml_dtypes.int4, "M8[ns]"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (300, 401)])
def test_it_is_what_is_documented(dtype, shape):
    array = np.ones(shape, dtype)
    name = str(DType.of(array))
    assert digest_of(array, DType.of(array)) == by_definition(name, shape, array.tobytes())


def test_strings_have_their_lengths_before_them():
    array = np.array([b"ab", b"", b"c"], object)
    data = b"".join(len(each).to_bytes(8, "little") + each for each in array)
    assert digest_of(array, DType.of("string")) == by_definition("string", (3,), data)


@given(st.lists(st.integers(0, 2 * CHUNK), max_size=6), st.integers(0, len(BYTES)))
def test_only_the_concatenation_of_the_parts_matters(sizes, end):
    parts, start = [], 0
    for size in sizes:
        parts.append(BYTES[start : min(start + size, end)])
        start = min(start + size, end)
    parts.append(BYTES[start:end])
    assert digests_of_chunks(parts) == digests_of_chunks([BYTES[:end]])


def test_memory_order_and_pieces_do_not_matter():
    array = np.random.default_rng(0).normal(size=(300, 200))
    dtype = DType.of(array)
    halves = [Piece((0, 0), (300, 90), array[:, :90]), Piece((0, 90), (300, 110), array[:, 90:])]
    others = [
        np.asfortranarray(array),
        PiecewiseArray(array.dtype, array.shape, halves),
        np.repeat(array, 2, 1)[:, ::2],
    ]
    assert {digest_of(each, dtype) for each in others} == {digest_of(array, dtype)}


def test_a_large_array_is_read_in_blocks():
    array = np.arange(5 << 20, dtype=np.int32).reshape(5, -1)
    assert len([*data_of(array, DType.of(array))]) > 1
    assert digest_of(array, DType.of(array)) == by_definition("int32", array.shape, array.tobytes())


@pytest.mark.parametrize(
    "other",
    [np.zeros(6, np.float32), np.zeros((3, 2), np.float32), np.zeros((2, 3), np.int32), -np.zeros((2, 3), np.float32)],
)
def test_another_shape_type_or_bit_has_another_digest(other):
    array = np.zeros((2, 3), np.float32)
    assert digest_of(array, DType.of(array)) != digest_of(other, DType.of(other))


def test_the_digest_of_values_is_what_is_documented():
    one, two = (digest_of_value(DType.of("int8"), (), digests_of_chunks([bytes([n])])) for n in (1, 2))
    lines = f"a/w {one}\nb {two}\n".encode()
    assert digest_of_values([("b", two), ("a/w", one)]) == f"sha256-v1:{hashlib.sha256(lines).hexdigest()}"

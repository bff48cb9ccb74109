"""A reader converts numbers, says how much is rounded, and refuses what would be lost."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from milepost.bundle import BundleWriter, CastingReader, data_path, index_path, is_castable, open_whole
from milepost.errors import MismatchError
from milepost.storage import MemoryStorage
from milepost.tensor import DType, TensorSlice

REALS = ("float16", "bfloat16", "float32", "float64")


def casting(array, dtype):
    """A reader of a checkpoint with this array as ``v``, converted."""
    storage, writer = MemoryStorage(), BundleWriter()
    writer.add("v", array, DType.of(array))
    with storage.create(data_path("ckpt", 0, 1)) as file:
        writer.write_shard(0, file)
    with storage.create(index_path("ckpt")) as file:
        file.write(0, [writer.index()])
    reader = CastingReader(open_whole(storage, "ckpt"))
    reader.cast("v", DType.of(dtype))
    return reader


def test_the_type_of_a_converted_tensor_is_the_new_one():
    reader = casting(np.ones((2, 3), np.float32), "bfloat16")
    assert str(reader.spec("v")) == "bfloat16[2,3]"
    assert reader.entry("v").dtype is DType.of("bfloat16")
    assert str(reader.saved("v")) == "float32[2,3]"


@pytest.mark.parametrize("dtype", REALS)
@given(array=hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_side=4), elements=st.floats(-6e4, 6e4, width=32)))
def test_numbers_are_rounded_as_numpy_rounds_them(dtype, array):
    expected = array.astype(DType.of(dtype).numpy)
    read = casting(array, dtype).read("v")
    assert read.dtype == expected.dtype
    assert np.array_equal(read, expected)


def test_the_largest_relative_error_is_noted():
    reader = casting(np.array([1.0, 1 + 2**-9], np.float32), "bfloat16")
    reader.read("v")
    assert reader.loss["v"] == pytest.approx(2**-9, rel=0.01)


def test_no_error_is_noted_where_nothing_is_rounded():
    reader = casting(np.array([1.5, -2.0, np.inf, np.nan, 0.0], np.float32), "float64")
    reader.check("v")
    assert reader.loss["v"] == 0


def test_a_part_is_converted_too():
    reader = casting(np.arange(6, dtype=np.float32).reshape(2, 3), "float16")
    part = reader.read("v", TensorSlice(((1, 1), (0, 2))))
    assert part.dtype == np.float16
    assert part.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("array", "dtype", "found"),
    [
        (np.array([1.0, 7e4], np.float32), "float16", "found: 70000.0 in float32$"),
        (np.array([7e4, 8e4], np.float32), "float16", "found: 70000.0 in float32, and 1 more$"),
        (np.array([300], np.int32), "uint8", "300"),
        (np.array([-1], np.int32), "uint32", "-1"),
        (np.array([2**53 + 1], np.int64), "float64", "9007199254740993"),
        (np.array([2**63 - 1], np.int64), "float32", "9223372036854775807"),
        (np.array([2**63], np.uint64), "int64", "9223372036854775808"),
    ],
)
def test_a_number_that_the_type_does_not_have_is_refused(array, dtype, found):
    reader = casting(array, dtype)
    with pytest.raises(MismatchError, match=f"(?m){found}"):
        reader.check("v")


@given(hnp.arrays(np.int64, 3, elements=st.integers(-(2**63), 2**63 - 1)), st.sampled_from(["int8", "int32", "uint16"]))
def test_integers_are_equal_or_refused(array, dtype):
    try:
        read = casting(array, dtype).read("v")
    except MismatchError:
        limits = np.iinfo(dtype)
        assert ((array < limits.min) | (array > limits.max)).any()
    else:
        assert [int(value) for value in read] == [int(value) for value in array]


def test_infinite_numbers_stay_infinite():
    reader = casting(np.array([np.inf, -np.inf, np.nan], np.float32), "float16")
    assert str(reader.read("v").tolist()) == "[inf, -inf, nan]"


def test_bfloat16_is_widened_exactly():
    array = np.array([1.5, 3.0e38], ml_dtypes.bfloat16)
    assert np.array_equal(casting(array, "float32").read("v"), array.astype(np.float32))


@pytest.mark.parametrize(
    ("saved", "wanted", "castable"),
    [
        ("float32", "bfloat16", True),
        ("int64", "float32", True),
        ("int32", "uint8", True),
        ("complex64", "complex128", True),
        ("float32", "int32", False),
        ("bool", "int32", False),
        ("int32", "bool", False),
        ("complex64", "float32", False),
        ("string", "float32", False),
        ("qint8", "int8", False),
    ],
)
def test_what_is_converted(saved, wanted, castable):
    assert is_castable(DType.of(saved), DType.of(wanted)) is castable

"""A snapshot holds the values of one moment, in memory that the next snapshot uses again."""

import copy
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.saving.snapshot import SnapshotMemory
from milepost.tensor import Piece, PiecewiseArray
from tests.on_device import Far

LARGE = 1 << 16
"""Elements of an array whose memory is kept."""


def in_halves(array, **options):
    half = len(array) // 2
    pieces = [
        Piece(((start, *(0,) * (array.ndim - 1))), part.shape, part)
        for start, part in ((0, array[:half]), (half, array[half:]))
    ]
    return PiecewiseArray(array.dtype, array.shape, pieces, **options)


@given(
    st.lists(
        st.tuples(st.sampled_from(["f4", "i8", "?", "c8", "u1"]), st.integers(0, 3 * LARGE), st.integers(0, 255)),
        max_size=5,
    ),
    st.integers(0, 3),
)
def test_a_copy_equals_the_values(described, times):
    memory = SnapshotMemory()
    for time in range(times + 1):
        values = [np.full(size, (number + time) % 256).astype(dtype) for dtype, size, number in described]
        copies = memory.copy(values)
        for value in values:
            value[...] = 0
        for (dtype, size, number), found in zip(described, copies, strict=True):
            assert np.array_equal(found, np.full(size, (number + time) % 256).astype(dtype))


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_of_any_layout_is_copied(order):
    array = np.asarray(np.arange(4.0 * LARGE).reshape(4, LARGE), order=order)[:, ::2]
    (found,) = SnapshotMemory().copy([array])
    assert np.array_equal(found, array)
    assert not np.shares_memory(found, array)


def test_text_is_copied():
    array = np.array(["a", b"b"] * LARGE, object)
    (found,) = SnapshotMemory().copy([array])
    array[:] = ""
    assert list(found[:2]) == ["a", b"b"]


def test_pieces_are_copied_without_a_whole_array_between():
    array = np.arange(2.0 * LARGE).reshape(2 * 16, -1)
    (found,) = SnapshotMemory().copy([in_halves(array)])
    assert np.array_equal(found, array)


def test_a_part_of_pieces_is_copied():
    array = np.arange(8.0 * LARGE).reshape(8, -1)
    found = SnapshotMemory().copy([in_halves(array)[1:7], in_halves(array)[3]])
    assert np.array_equal(found[0], array[1:7])
    assert np.array_equal(found[1], array[3])


def test_what_never_changes_is_not_copied():
    constant = in_halves(np.arange(2.0 * LARGE), constant=True)
    (found,) = SnapshotMemory().copy([constant])
    assert found is constant


def test_the_memory_is_used_again():
    memory, array = SnapshotMemory(), np.zeros(LARGE)
    (first,) = memory.copy([array])
    (second,) = memory.copy([array + 1])
    assert np.shares_memory(first, second)


def test_two_values_of_one_size_get_memory_of_their_own():
    memory, array = SnapshotMemory(), np.zeros(LARGE)
    memory.copy([array])
    first, second = memory.copy([array + 1, array + 2])
    assert (first[0], second[0]) == (1, 2)


def test_memory_of_another_size_is_given_back():
    memory = SnapshotMemory()
    (first,) = memory.copy([np.zeros(LARGE)])
    memory.copy([np.zeros(2 * LARGE)])
    (third,) = memory.copy([np.zeros(LARGE)])
    assert not np.shares_memory(first, third)


def test_released_memory_is_not_used_again():
    memory = SnapshotMemory()
    (first,) = memory.copy([np.zeros(LARGE)])
    memory.release()
    (second,) = memory.copy([np.zeros(LARGE)])
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copied_checkpoint_has_snapshots_of_its_own(tmp_path, duplicate):
    checkpoint = milepost.Checkpoint(v=milepost.Variable(np.zeros(LARGE)))
    options = milepost.CheckpointOptions(enable_async=True)
    checkpoint.write(str(tmp_path / "first"), options)
    other = duplicate(checkpoint)
    other.v.assign(np.ones(LARGE))
    other.write(str(tmp_path / "second"), options)
    checkpoint.sync()
    other.sync()
    assert [milepost.load_variable(str(tmp_path / name), "v")[0] for name in ("first", "second")] == [0, 1]


def test_each_asynchronous_save_has_the_values_of_its_call(tmp_path):
    value = np.zeros(4 * LARGE)
    checkpoint = milepost.Checkpoint(value=value)
    options = milepost.CheckpointOptions(enable_async=True)
    paths = []
    for number in range(8):
        value[:] = number
        paths.append(checkpoint.write(str(tmp_path / str(number)), options))
        value[:] = -1
    checkpoint.sync()
    for number, path in enumerate(paths):
        assert set(milepost.load_variable(path, "value")) == {number}


def test_a_save_from_a_callback_of_an_asynchronous_save_has_its_own_values(tmp_path):
    value = np.zeros(4 * LARGE)
    checkpoint = milepost.Checkpoint(value=value)

    def save_again(path):
        value[:] = 2
        checkpoint.write(path + "-again", milepost.CheckpointOptions(enable_async=True))

    value[:] = 1
    checkpoint.write(
        str(tmp_path / "first"),
        milepost.CheckpointOptions(enable_async=True, experimental_write_callbacks=[save_again]),
    )
    checkpoint.sync()
    found = [milepost.load_variable(str(tmp_path / name), "value")[0] for name in ("first", "first-again")]
    assert found == [1, 2]


@pytest.fixture
def far():
    def on_device(array):
        return PiecewiseArray(array.dtype, array.shape, [Piece((0,) * array.ndim, array.shape, Far(array))])

    Far.prepared = []
    yield on_device
    Far.prepared = []


def test_values_on_a_device_are_copied_into_memory_that_the_device_has_prepared(far):
    arrays = [np.full(LARGE, number, "f4") for number in range(3)]
    copies = SnapshotMemory().copy([far(arrays[0]), arrays[1], far(arrays[2])])
    (memory,) = Far.prepared
    assert [np.shares_memory(copy, memory) for copy in copies] == [True, False, True]
    for copied, array in zip(copies, arrays, strict=True):
        assert np.array_equal(copied, array)
        assert not np.shares_memory(copied, array)


def test_prepared_memory_is_used_again(far):
    memory = SnapshotMemory()
    arrays = [np.full(LARGE, number, "f4") for number in range(3)]
    memory.copy([far(array) for array in arrays])
    for array in arrays:
        array += 1
    second = memory.copy([far(array) for array in reversed(arrays)])
    assert len(Far.prepared) == 1
    assert [copied[0] for copied in second] == [3, 2, 1]
    assert all(np.shares_memory(copied, Far.prepared[0]) for copied in second)


def test_only_memory_that_is_missing_is_made_anew(far):
    memory = SnapshotMemory()
    memory.copy([far(np.zeros(LARGE, "f4"))])
    grown = [np.ones(LARGE, "f4"), np.ones(2 * LARGE, "f4"), np.ones(LARGE, "f4")]
    copies = memory.copy([far(array) for array in grown])
    assert [each.nbytes // (4 * LARGE) for each in Far.prepared] == [1, 3]
    assert all(np.array_equal(copied, array) for copied, array in zip(copies, grown, strict=True))
    assert not np.shares_memory(copies[0], copies[2])


def test_prepared_memory_is_given_back(far):
    memory = SnapshotMemory()
    memory.copy([far(np.zeros(LARGE, "f4"))])
    left = weakref.ref(Far.prepared.pop())
    memory.release()
    assert left() is None


class Held(Far):
    """Elements that their device copies by itself."""

    @classmethod
    def held(cls, sources):
        return [source.array.copy() for source in sources]


def test_what_a_device_copies_by_itself_is_not_copied_again():
    arrays = [np.arange(LARGE, dtype="f4"), np.arange(8.0), np.arange(2.0 * LARGE).reshape(2, LARGE)]
    given = [
        PiecewiseArray(each.dtype, each.shape, [Piece((0,) * each.ndim, each.shape, Held(each))]) for each in arrays
    ]
    rows = [Piece((row, 0), (1, LARGE), Held(arrays[2][row : row + 1])) for row in range(2)]
    given[2] = PiecewiseArray(arrays[2].dtype, arrays[2].shape, rows)
    expected = [each.copy() for each in [*arrays, arrays[2][1, 5:]]]
    copies = SnapshotMemory().copy([*given, given[2][1][5:]])
    for each in arrays:
        each[...] = 0
    assert all(copied.constant for copied in copies)
    assert all(np.array_equal(copied, each) for copied, each in zip(copies, expected, strict=True))


def test_what_a_device_cannot_copy_by_itself_is_copied(far):
    class Unable(Far):
        pass

    array = np.arange(LARGE, dtype="f4")
    able = PiecewiseArray(array.dtype, array.shape, [Piece((0,), array.shape, Held(array))])
    unable = PiecewiseArray(array.dtype, array.shape, [Piece((0,), array.shape, Unable(array))])
    copies = SnapshotMemory().copy([able, unable, array])
    array[...] = -1
    assert all(np.array_equal(copied, np.arange(LARGE, dtype="f4")) for copied in copies)
    assert len(Far.prepared) == 1

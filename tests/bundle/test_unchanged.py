"""Comparing tensors with stored bytes: what is equal is found, what differs anywhere is found, damage is never equal."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from milepost.bundle import BundleWriter, Entry
from milepost.bundle.counting import counted_by
from milepost.bundle.reader import IndexedReader
from milepost.bundle.unchanged import Candidate, find_unchanged
from milepost.coding.crc32c import crc32c, mask
from milepost.storage import MemoryStorage
from milepost.tensor import DType, PiecewiseArray, TensorSlice
from milepost.tensor.pieces import Piece

LARGE = 5 << 20
"""Elements of four bytes: more than one block and one chunk, so that several threads compare them."""


def stored(array: Any, storage: MemoryStorage | None = None, **change: Any) -> Candidate:
    """A candidate of an array and its own stored bytes."""
    storage = storage or MemoryStorage()
    data = np.ascontiguousarray(array).tobytes()
    with storage.create("f") as file:
        file.write(3, [data])
    entry = Entry(DType.of(array), array.shape, 0, 3, len(data), mask(crc32c(data)))
    return Candidate(array, storage.open("f"), entry._replace(**change))


def is_same(candidate: Candidate) -> bool:
    return find_unchanged([candidate])[0]


@pytest.mark.parametrize("size", [1, 3, 1024, 1025, 300_001, LARGE])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_the_same_bytes_are_found(size: int, dtype: str) -> None:
    assert is_same(stored((np.arange(size) % 2).astype(dtype)))


@pytest.mark.parametrize("at", [0, 1, 1023, 1024, 300_000, LARGE // 2, LARGE - 1])
def test_one_element_that_differs_is_found_wherever_it_is(at: int) -> None:
    candidate: Any = stored(np.zeros(LARGE, np.float32))
    assert is_same(candidate)
    candidate.array[at] = 1
    assert not is_same(candidate)


@pytest.mark.parametrize("at", range(16))
@pytest.mark.parametrize("size", range(9, 17))
def test_each_byte_is_compared(size: int, at: int) -> None:
    """Also those after the last eight that are compared at once."""
    candidate: Any = stored(np.zeros(size, np.int8))
    candidate.array[at % size] = 1
    assert not is_same(candidate)


def test_bytes_count_and_not_values() -> None:
    """NaN is unchanged if its bits are, and -0.0 is not 0.0."""
    assert is_same(stored(np.full(3, np.nan)))
    candidate: Any = stored(np.zeros(3))
    candidate.array[2] = -0.0
    assert not is_same(candidate)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(60_000.0).reshape(300, 200).T,
        np.arange(60_000.0)[::3],
        np.array(5),
        np.arange(10.0).astype(">f8"),
        np.zeros((2, 1, 3), order="F"),
    ],
)
def test_any_layout_of_memory(array: Any) -> None:
    """What counts is how the elements would be written."""
    little = stored(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")))
    assert is_same(little._replace(array=array))


def test_an_array_in_pieces() -> None:
    halves = [Piece((0,), (2,), np.array([1, 2])), Piece((2,), (2,), np.array([3, 4]))]
    array = PiecewiseArray(np.dtype(int), (4,), halves)
    assert is_same(stored(np.array([1, 2, 3, 4]))._replace(array=array))
    assert not is_same(stored(np.array([1, 2, 3, 5]))._replace(array=array))


def test_equal_bytes_with_another_checksum_in_their_entry_are_not_the_same() -> None:
    """The entry would be taken over, and every reader would refuse it."""
    assert not is_same(stored(np.ones(5), crc=7))


def test_bytes_that_cannot_be_read_are_not_the_same() -> None:
    assert not is_same(stored(np.ones(5), offset=1 << 40))
    # nor are they those that were read before
    assert find_unchanged([stored(np.ones(5)), stored(np.ones(5), offset=1 << 40)]) == [True, False]


def test_each_candidate_has_its_own_answer() -> None:
    candidates: list[Any] = [stored(np.full(400_000, number, np.float32)) for number in range(9)]
    for number in range(0, 9, 2):
        candidates[number].array[-1] = -1
    assert find_unchanged(candidates) == [number % 2 == 1 for number in range(9)]
    assert find_unchanged([]) == []


def test_what_was_compared_is_told() -> None:
    """To whoever counts what is read, too. Of an array that differs at its beginning, nothing is."""
    counts: list[int] = []
    candidate: Any = stored(np.zeros(LARGE, np.float32))
    with counted_by(counts.append):
        find_unchanged([candidate], counts.append)
    assert sum(counts) == 2 * 4 * LARGE
    counts.clear()
    candidate.array[:] = 1
    find_unchanged([candidate], counts.append)
    assert sum(counts) == 0


def test_it_takes_little_memory() -> None:
    """However large the tensors are, and whatever their layout: chunks, and the block of one that is not contiguous."""
    for array in (np.zeros(LARGE), np.zeros((LARGE // 4, 4)).T):
        little: Any = stored(np.ascontiguousarray(array))._replace(array=array)
        tracemalloc.start()
        try:
            assert is_same(little)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()


class TestWriterAndReader:
    """What a writer takes over, a reader finds."""

    def written(self) -> MemoryStorage:
        """A checkpoint whose second data file was written by another one."""
        storage, first, second = MemoryStorage(), BundleWriter(), BundleWriter(shards=2)
        first.add("dead", np.ones(9))
        first.add("whole", np.arange(3.0))
        for row in range(2):
            first.add_slice("cut", (2, 2), TensorSlice(((row, 1), (0, -1))), np.full((1, 2), row))
        with storage.create("old.data-00000-of-00001") as file:
            first.write_shard(0, file)
        with storage.create("old.index") as file:
            file.write(0, [first.index()])
        storage.link("old.data-00000-of-00001", "new.data-00001-of-00002")
        old = IndexedReader(storage, "old", "old.index")
        box = TensorSlice(((0, 1), (0, -1)))
        whole, cut = old.stored("whole"), old.stored("cut", box)
        assert whole is not None
        assert cut is not None
        second.add_stored("whole", (3,), None, whole[1], shard=1)
        second.add_stored("cut", (2, 2), box, cut[1], shard=1)
        second.add_slice("cut", (2, 2), TensorSlice(((1, 1), (0, -1))), np.full((1, 2), 7))
        with storage.create("new.data-00000-of-00002") as file:
            second.write_shard(0, file)
        with storage.create("new.index") as file:
            file.write(0, [second.index()])
        return storage

    def test_wholes_and_pieces(self) -> None:
        reader = IndexedReader(self.written(), "new", "new.index")
        reader.verify()
        assert reader.keys() == ["cut", "whole"]
        assert reader.read("whole").tolist() == [0, 1, 2]
        assert reader.read("cut").tolist() == [[0, 0], [7, 7]]

    def test_where_something_is_stored(self) -> None:
        """Nothing is told of what is not stored in one run under this very name."""
        reader = IndexedReader(self.written(), "old", "old.index")
        assert reader.stored("cut") is None
        assert reader.stored("none") is None
        assert reader.stored("\ud800") is None
        assert reader.stored("cut", TensorSlice(((0, 2), (0, 1)))) is None

    def test_a_file_that_is_taken_over_is_not_written(self) -> None:
        writer = BundleWriter(shards=2)
        writer.add("x", np.ones(1), shard=0)
        with pytest.raises(ValueError, match="is to be written"):
            writer.add_stored("y", (1,), None, Entry(DType.of("float64"), (1,), size=8), shard=0)
        writer.add_stored("y", (1,), None, Entry(DType.of("float64"), (1,), size=8), shard=1)
        with pytest.raises(ValueError, match="was written before"):
            writer.add("z", np.ones(1), shard=1)

"""The index of several processes is that of one that has all tensors."""

from __future__ import annotations

import numpy as np
import pytest

from milepost.bundle import BundleWriter, data_path, index_path, open_whole
from milepost.bundle.merging import contribution, merged_index
from milepost.errors import CoordinationError
from milepost.storage import MemoryStorage
from milepost.tensor import TensorSlice


def written(storage, shard, shards, tensors, pieces=()):
    """What one process adds, when it has written these tensors and pieces."""
    writer = BundleWriter(shards=shards)
    for key, array in tensors.items():
        writer.add(key, array, shard=shard)
    for key, shape, box, array in pieces:
        writer.add_slice(key, shape, TensorSlice.parse(box), array, shard=shard)
    with storage.create(data_path("p", shard, shards)) as file:
        writer.write_shard(shard, file)
    return contribution(writer.entries, writer.pieces)


def opened(storage, parts, sharded=()):
    with storage.create(index_path("p")) as file:
        file.write(0, [merged_index(parts, sharded, len(parts))])
    return open_whole(storage, "p")


def test_tensors_of_all_are_found():
    storage = MemoryStorage()
    parts = [written(storage, shard, 3, {f"key{shard}": np.full(3, shard)}) for shard in range(3)]
    with opened(storage, parts) as reader:
        assert reader.keys() == ["key0", "key1", "key2"]
        assert [reader.read(key)[0] for key in reader.keys()] == [0, 1, 2]  # noqa: SIM118 - a reader is no mapping


def test_pieces_of_all_make_up_a_tensor():
    storage = MemoryStorage()
    whole = np.arange(12.0).reshape(4, 3)
    parts = [
        written(storage, 0, 2, {}, [("w", (4, 3), "0,1:-", whole[:1]), ("w", (4, 3), "3,1:-", whole[3:])]),
        written(storage, 1, 2, {"other": np.ones(2)}, [("w", (4, 3), "1,2:-", whole[1:3])]),
    ]
    with opened(storage, parts, [b"w"]) as reader:
        assert np.array_equal(reader.read("w"), whole)
        reader.verify()


def test_the_index_is_that_of_one_writer_of_the_same_files():
    shapes = {"w": (600, 2), "v": (5,), "b": (3, 600)}
    boxes = {"w": [f"{row},1:-" for row in range(600)], "v": ["0,2", "2,3"], "b": [f"-:{c},200" for c in (0, 200, 400)]}
    rows = {key: np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for key, shape in shapes.items()}
    storage, parts = MemoryStorage(), []
    one = BundleWriter(shards=3)
    for shard in (2, 0, 1):  # in another order than that of the boxes
        several = BundleWriter(shards=3)
        for key, shape in shapes.items():
            for number, text in enumerate(boxes[key]):
                if number % 3 == shard:
                    box = TensorSlice.parse(text)
                    for writer in (one, several):
                        writer.add_slice(key, shape, box, rows[key][box.resolve(shape)], shard=shard)
        for writer in (one, several):
            writer.add(f"own{shard}", np.full(2, shard), shard=shard)
            with storage.create(f"{id(writer)}-{shard}") as file:
                writer.write_shard(shard, file)
        parts.append(contribution(several.entries, several.pieces))
    # TensorFlow and milepost list the pieces of a tensor in the order in which they were added
    assert merged_index(parts, [b"w", b"v", b"b"], 3) == one.index()


def test_what_comes_after_the_part_of_a_process_is_ignored():
    storage = MemoryStorage()
    parts = [written(storage, shard, 2, {f"key{shard}": np.ones(2)}) + b"more" for shard in range(2)]
    with opened(storage, parts) as reader:
        assert reader.keys() == ["key0", "key1"]


def test_a_process_that_writes_nothing_adds_nothing():
    storage = MemoryStorage()
    parts = [written(storage, 0, 2, {"a": np.ones(2)}), written(storage, 1, 2, {})]
    with opened(storage, parts) as reader:
        assert reader.keys() == ["a"]


def test_a_missing_piece_is_refused():
    storage = MemoryStorage()
    parts = [written(storage, 0, 1, {}, [("w", (4,), "0,3", np.ones(3))])]
    with pytest.raises(
        CoordinationError, match=r"(?s)each element of a tensor once.*key: w.*expected: 4 elements.*found: 3"
    ):
        merged_index(parts, [b"w"], 1)


def test_a_tensor_that_nobody_wrote_is_refused():
    with pytest.raises(CoordinationError, match=r"(?s)each element of a tensor once.*key: w"):
        merged_index([contribution({}, {})], [b"w"], 1)


def test_a_tensor_that_two_wrote_is_refused():
    storage = MemoryStorage()
    parts = [written(storage, shard, 2, {"a": np.ones(2)}) for shard in range(2)]
    with pytest.raises(CoordinationError, match=r"(?s)two processes have written the same tensor.*key: a"):
        merged_index(parts, [], 2)


def test_a_piece_that_two_wrote_is_refused():
    storage = MemoryStorage()
    parts = [written(storage, shard, 2, {}, [("w", (4,), "0,2", np.ones(2))]) for shard in range(2)]
    with pytest.raises(CoordinationError, match=r"(?s)two processes have written the same tensor.*key: w"):
        merged_index(parts, [b"w"], 2)


def test_a_tensor_that_one_wrote_whole_and_another_in_pieces_is_refused():
    storage = MemoryStorage()
    parts = [
        written(storage, 0, 2, {"w": np.ones(4)}),
        written(storage, 1, 2, {}, [("w", (4,), box, np.ones(2)) for box in ("0,2", "2,2")]),
    ]
    with pytest.raises(CoordinationError, match=r"(?s)two processes have written the same tensor.*key: w"):
        merged_index(parts, [b"w"], 2)

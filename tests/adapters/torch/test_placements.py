"""Which elements each process of a mesh holds: compared with splits of real tensors."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
placements = pytest.importorskip("milepost.adapters.torch.distributed.placements")
held, MeshSplit, with_repetitions = placements.held, placements.MeshSplit, placements.with_repetitions


def elements(found, shape):
    """The numbers of the elements that a process holds, in the order in which it holds them."""
    whole = np.arange(np.prod(shape)).reshape(shape)
    local = np.full(found.shape, -1)
    for part in found.parts:
        box = tuple(slice(start, start + length) for start, length in zip(part.start, part.shape, strict=True))
        local[part.local] = whole[box]
    return local


def chunk(tensor, count, number, dim):
    """One of several parts, as `torch.chunk` makes them, which leaves out empty ones."""
    parts = torch.chunk(tensor, count, dim)
    return parts[number] if number < len(parts) else tensor.narrow(dim, 0, 0)


@pytest.mark.parametrize("shape", [(7, 5), (1, 4), (8, 6), (2, 3)])
@pytest.mark.parametrize("dims", [(0, 0), (0, 1), (1, 1)])
def test_splits_are_taken_one_after_the_other(shape, dims):
    mesh = np.arange(6).reshape(2, 3)
    for rank, place in enumerate(itertools.product(range(2), range(3))):
        expected = torch.arange(shape[0] * shape[1]).reshape(shape)
        for axis, dim in enumerate(dims):
            expected = chunk(expected, mesh.shape[axis], place[axis], dim)
        found = held(shape, mesh, [MeshSplit(axis, dim) for axis, dim in enumerate(dims)], rank)
        assert np.array_equal(elements(found, shape), expected.numpy()), rank


@pytest.mark.parametrize("length", range(1, 14))
@pytest.mark.parametrize(("data", "tensor"), [(2, 2), (4, 2), (2, 3), (3, 2)])
def test_a_strided_split_comes_after_those_of_later_dimensions_of_the_mesh(length, data, tensor):
    # As fully_shard() splits the shards of tensor parallelism: also where the parts are not even, or empty.
    mesh = np.arange(data * tensor).reshape(data, tensor)
    for rank, (row, column) in enumerate(itertools.product(range(data), range(tensor))):
        expected = chunk(chunk(torch.arange(length), tensor, column, 0), data, row, 0)
        found = held((length,), mesh, [MeshSplit(0, 0, factor=tensor), MeshSplit(1, 0)], rank)
        assert elements(found, (length,)).tolist() == expected.tolist(), rank


def test_a_strided_split_of_another_factor_is_taken_by_its_definition():
    # Four parts, each of which is split in two, as a view of a sharded tensor may be.
    found = [held((16,), np.arange(2), [MeshSplit(0, 0, factor=4)], rank) for rank in range(2)]
    assert elements(found[0], (16,)).tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert [part.start for part in found[1].parts] == [(2,), (6,), (10,), (14,)]


def test_an_order_that_is_told_is_taken():
    mesh = np.arange(4).reshape(2, 2)
    found = [
        held((8,), mesh, [MeshSplit(0, 0), MeshSplit(1, 0)], rank, {0: (1, 0)}).parts[0].start for rank in range(4)
    ]
    assert found == [(0,), (4,), (2,), (6,)]


def test_replicas_have_the_same_holders():
    mesh = np.array([[0, 1], [2, 3]])
    assert [held((4, 4), mesh, [MeshSplit(1, 0)], rank).holders for rank in range(4)] == [
        (0, 2),
        (1, 3),
        (0, 2),
        (1, 3),
    ]


def test_every_element_is_held_by_exactly_the_holders():
    mesh, shape = np.array([[[4, 1], [2, 0]], [[3, 5], [7, 6]]]), (5, 3)
    splits = [MeshSplit(0, 0, factor=2), MeshSplit(1, 0)]
    counts = np.zeros(shape, int)
    for rank in range(8):
        found = held(shape, mesh, splits, rank)
        for element in elements(found, shape).reshape(-1):
            counts.reshape(-1)[element] += 1
        same = [other for other in range(8) if held(shape, mesh, splits, other).parts == found.parts]
        assert not found.parts or found.holders == tuple(same)
    assert (counts == 2).all()


def test_a_process_outside_the_mesh_holds_nothing():
    assert held((4,), np.array([0, 1]), [MeshSplit(0, 0)], 2).parts == ()


def test_a_part_of_a_mesh_is_there_once_for_each_of_the_others():
    root = np.arange(8).reshape(2, 2, 2)
    assert with_repetitions(np.array([1, 3]), root).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert with_repetitions(np.array([[0, 2], [4, 6]]), root).tolist() == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    assert with_repetitions(np.array([0, 2, 4, 6]), root).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_a_mesh_that_is_no_part_along_dimensions_is_alone():
    root = np.arange(4).reshape(2, 2)
    assert with_repetitions(np.array([0, 3]), root).tolist() == [[0, 3]]
    assert with_repetitions(np.array([0, 1, 2, 3]), root).tolist() == [[0, 1, 2, 3]]

"""Which elements of a tensor each process of a mesh holds.

A mesh is an array of processes. Along each of its dimensions a tensor is either repeated or split::

    Shard(0)             along this mesh dimension, tensor dimension 0 is split as `torch.chunk` does it
    _StridedShard(0, 2)  the same, after splits along later mesh dimensions have made 2 parts of it
    Replicate()          all processes along this mesh dimension hold the same

So tensor dimensions are independent of each other, and what one process holds in one of them is a list of runs. Nearly always it
is one run. All functions are pure, and every process comes to the same result for every other one without asking it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from milepost.errors import UnsupportedError

Run = tuple[int, int]
"""Start and length."""


class MeshSplit(NamedTuple):
    """How a tensor is split along one dimension of a mesh.

    Attributes:
        axis: The dimension of the mesh.
        dim: The dimension of the tensor.
        factor: How many parts other splits make of it before this one, which are along later dimensions of the mesh.
    """

    axis: int
    dim: int
    factor: int = 1


class HeldBox(NamedTuple):
    """A box of a tensor that one process holds.

    Attributes:
        start: Where it begins in the tensor.
        shape: Its lengths.
        local: Where it is in what the process holds.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    local: tuple[slice, ...]


class HeldPart(NamedTuple):
    """The part of a tensor that one process holds.

    Attributes:
        shape: The shape of all of it together.
        parts: Its boxes; none if it holds nothing.
        holders: The numbers of all processes that hold the same, ascending.
    """

    shape: tuple[int, ...]
    parts: tuple[HeldBox, ...]
    holders: tuple[int, ...]


def held(
    shape: Sequence[int],
    mesh: np.ndarray[Any, Any],
    splits: Sequence[MeshSplit],
    rank: int,
    orders: Mapping[int, Sequence[int]] | None = None,
) -> HeldPart:
    """Computes the part of a tensor that a process holds.

    Args:
        shape: The shape of the tensor.
        mesh: The numbers of the processes.
        splits: How the tensor is split, in the order of the dimensions of the mesh. Along the others it is repeated.
        rank: The number of the process.
        orders: For tensor dimensions that are not split in this order: the dimensions of the mesh in the order of the splits.

    Raises:
        UnsupportedError: The tensor is split along a dimension that it does not have.

    Example:
        >>> mesh = np.array([[0, 1], [2, 3]])
        >>> held((8, 6), mesh, [MeshSplit(0, 0)], 2)
        HeldPart(shape=(4, 6), parts=(HeldBox(start=(4, 0), shape=(4, 6), local=(slice(0, 4, None), slice(0, 6, None))),), holders=(2, 3))
        >>> held((8,), mesh, [MeshSplit(0, 0, factor=2), MeshSplit(1, 0)], 1).parts[0].start
        (4,)
    """
    positions = np.argwhere(mesh == rank)
    if not len(positions):
        return HeldPart((0,), (), ())
    position = [int(each) for each in positions[0]]
    for split in splits:
        if not 0 <= split.dim < len(shape):
            raise UnsupportedError(
                "a tensor is split along a dimension that it does not have",
                found=f"dimension {split.dim} of shape {tuple(shape)}",
            )
    runs = []
    for dim, length in enumerate(shape):
        along = [split for split in splits if split.dim == dim]
        order = orders.get(dim) if orders else None
        runs.append(_runs(length, along, mesh.shape, position, order))
    repeated = tuple(
        position[axis] if any(split.axis == axis for split in splits) else slice(None) for axis in range(mesh.ndim)
    )
    holders = tuple(sorted(int(each) for each in np.asarray(mesh[repeated]).reshape(-1)))
    return HeldPart(tuple(sum(length for _, length in each) for each in runs), _parts(runs), holders)


def with_repetitions(mesh: np.ndarray[Any, Any], root: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """All parts of a mesh that are like a given part, the given one included.

    A tensor on a part of a mesh exists once on each such part, so processes outside the given part hold it too. An example is a tensor
    that is divided for tensor parallelism on a mesh that also has a dimension for data parallelism.

    Args:
        mesh: The numbers of the processes of the given part.
        root: The numbers of the processes of the whole mesh.

    Returns:
        The numbers of the processes of each part, along the first dimension. If the mesh has no parts like this one: the given part.

    Example:
        >>> with_repetitions(np.array([0, 2]), np.array([[0, 1], [2, 3]])).tolist()
        [[0, 2], [1, 3]]
    """
    positions = np.argwhere(np.isin(root, mesh))
    if len(positions) == mesh.size < root.size:
        axes = [axis for axis in range(root.ndim) if len(set(positions[:, axis])) > 1]
        others = [axis for axis in range(root.ndim) if axis not in axes]
        repeated: np.ndarray[Any, Any] = root.transpose(*others, *axes)
        if math.prod(root.shape[axis] for axis in axes) == mesh.size:
            repeated = repeated.reshape(-1, *mesh.shape)
            if any(np.array_equal(each, mesh) for each in repeated):
                return repeated
    return mesh[np.newaxis]


def _parts(runs: Sequence[Sequence[Run]]) -> tuple[HeldBox, ...]:
    placed = []
    for runs_along in runs:
        ends = list(itertools.accumulate((length for _, length in runs_along), initial=0))
        placed.append(
            [(*run, slice(begin, end)) for run, (begin, end) in zip(runs_along, itertools.pairwise(ends), strict=True)]
        )
    return tuple(
        HeldBox(
            tuple(start for start, _, _ in box),
            tuple(length for _, length, _ in box),
            tuple(local for _, _, local in box),
        )
        for box in itertools.product(*placed)
    )


def _runs(
    length: int, splits: Sequence[MeshSplit], mesh: Sequence[int], position: Sequence[int], order: Sequence[int] | None
) -> list[Run]:
    """The runs that one process holds along one dimension of a tensor. None of them is empty."""
    if order is None:
        order = _order(splits, mesh)
    if order is None:
        return _by_index(length, splits, mesh, position)
    start = 0
    for axis in order:
        first, length = _chunk(length, mesh[axis], position[axis])
        start += first
    return [(start, length)] if length else []


def _order(splits: Sequence[MeshSplit], mesh: Sequence[int]) -> list[int] | None:
    """The order in which splits can be applied one by one, as dimensions of the mesh; None if there is no such order.

    A split with a factor is applied after splits along later dimensions of the mesh that together make so many parts.
    """
    order: list[int] = []
    for split in reversed(splits):
        made = [math.prod(mesh[axis] for axis in order[:count]) for count in range(len(order) + 1)]
        if split.factor not in made:
            return None
        order.insert(made.index(split.factor), split.axis)
    return order


def _by_index(length: int, splits: Sequence[MeshSplit], mesh: Sequence[int], position: Sequence[int]) -> list[Run]:
    """The same for splits that have no order: each split is applied to every part that the others made, and the pieces are joined."""
    index = np.arange(length)
    for split in splits:
        pieces = []
        for number in range(split.factor):
            begin, size = _chunk(len(index), split.factor, number)
            first, count = _chunk(size, mesh[split.axis], position[split.axis])
            pieces.append(index[begin + first : begin + first + count])
        index = np.concatenate(pieces)
    if not len(index):
        return []
    cuts = np.flatnonzero(np.diff(index) != 1) + 1
    return [(int(run[0]), len(run)) for run in np.split(index, cuts)]


def _chunk(length: int, count: int, number: int) -> Run:
    """Start and length of one of several parts, as `torch.chunk` makes them: the last ones may be shorter, or empty."""
    size = -(-length // count)
    start = min(number * size, length)
    return start, min(size, length - start)

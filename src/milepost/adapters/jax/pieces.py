"""The elements of JAX's arrays, device by device: how a save reads them, and how a restore places them.

No array is gathered, except one of a few bytes. An array that is spread over devices is written from the memory of each device. A
restore gives each device its own box of the saved tensor. `numpy.asarray` would keep the copy that it makes of an array on a device;
the functions here keep no copy.

Each process reads the part of an array that its own devices hold. The sharding tells where all boxes are, so processes exchange no
messages about them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from milepost.adapters.jax.host_memory import copied_to_host
from milepost.forks import ForkableLock
from milepost.graph.adapter import Array, StoredTensor
from milepost.tensor import OnDevice, Piece, PieceSource, PiecewiseArray, Shard, ShardedArray, TensorSlice
from milepost.tensor.pieces import Slices

_BITS: Final = 8
"""Bits of a byte."""
_FETCHED: Final = 16 << 20
"""How many bytes are fetched from a device at once; a row that is longer is fetched whole."""
_COPIED: Final = 64 << 10
"""The most bytes of an array that is copied without a noticeable delay."""
_JOINED: Final = 4 << 10
"""The most bytes of an array whose pieces are copied into one array at once. The objects for its pieces would take as much memory."""
_REMEMBERED: Final = 1024
"""How many pairs of a sharding and a shape have their boxes remembered."""

Ranges = tuple[tuple[int, int], ...]
"""Where a box begins and ends, in each dimension."""


def elements(array: Any, where: Whereabouts) -> Array | PiecewiseArray | ShardedArray:
    """The elements of a `jax.Array` that this process holds.

    On a CPU they are the array's own memory, which cannot change. Elements on other devices are fetched when they are written.

    Args:
        array: The array.
        where: Where it lies.
    """
    if not where.is_here and not _all_hold_all(array):
        return _sharded(array, where)
    has_memory_here = _has_memory_here(where, array.dtype)
    if has_memory_here and (where.device is not None or array.is_fully_replicated):
        view = np.asarray(array)
        return view if view.nbytes <= _COPIED else _in_pieces(view, [Piece((0,) * view.ndim, view.shape, view)])
    if has_memory_here and array.nbytes <= _JOINED:
        joined = np.empty(array.shape, array.dtype)
        for ranges, data in _boxes_of(array):
            joined[_slices(ranges)] = np.asarray(data)
        return joined
    pieces = [
        piece
        for ranges, data in _boxes_of(array)
        for piece in _pieces(data, tuple(start for start, _ in ranges), has_memory_here=has_memory_here)
    ]
    return _in_pieces(array, pieces)


def _in_pieces(array: Any, pieces: Sequence[Piece]) -> PiecewiseArray:
    # JAX gives no memory of the CPU to another array as long as NumPy has a view of it. On other devices it may.
    constant = all(isinstance(piece.source, np.ndarray) for piece in pieces)
    return PiecewiseArray(array.dtype, array.shape, pieces, constant=constant)


class Whereabouts(NamedTuple):
    """Where the arrays of a sharding lie.

    Attributes:
        device: The only device, if it is one of this process; None if they are spread.
        is_here: Whether all devices are those of this process.
        on_cpu: Whether the memory of the devices is that of a CPU.
    """

    device: Any
    is_here: bool
    on_cpu: bool


@functools.lru_cache(_REMEMBERED)
def whereabouts(sharding: Any) -> Whereabouts:
    """Where the arrays of a sharding lie. It is remembered, because most arrays of a program have the same sharding."""
    devices, is_here = sharding.device_set, sharding.is_fully_addressable
    first = next(iter(devices), None)
    alone = len(devices) == 1 and is_here
    return Whereabouts(first if alone else None, is_here, first is not None and first.platform == "cpu")


def is_spread(sharding: Any) -> bool:
    """Whether the arrays of a sharding lie on several devices, or on devices of other processes."""
    return whereabouts(sharding).device is None


def boxes_here(sharding: Any, shape: tuple[int, ...]) -> list[TensorSlice] | None:
    """The boxes that the devices of this process hold; None if these are the whole array."""
    if whereabouts(sharding).is_here:
        return None
    here = {_ranges(index, shape) for index in sharding.addressable_devices_indices_map(shape).values()}
    if sum(_size(ranges) for ranges in here) == math.prod(shape):
        return None
    return [_box_of(ranges) for ranges in sorted(here)]


def reads_boxes(stored: Array | StoredTensor) -> Callable[[tuple[slice, ...]], Array]:
    """A function that reads boxes of a saved tensor for devices. A box that several devices hold is read once."""
    read: dict[Ranges, Array] = {}

    def box_at(index: tuple[slice, ...]) -> Array:
        ranges = _ranges(index, stored.shape)
        box = read.get(ranges)
        if box is None:
            box = read[ranges] = _box(stored, ranges)
        return box

    return box_at


def _sharded(array: Any, where: Whereabouts) -> ShardedArray:
    holders, has_memory_here = _holders(array.sharding, array.shape), _has_memory_here(where, array.dtype)
    shards = []
    for ranges, data in _boxes_of(array):
        whole = np.asarray(data) if has_memory_here else _fetched(data)
        shards.append(Shard(tuple(start for start, _ in ranges), whole, holders[ranges]))
    return ShardedArray(array.dtype, array.shape, shards, _layout(array.sharding, array.shape))


def _fetched(data: Any) -> PiecewiseArray:
    return _in_pieces(data, list(_pieces(data, (0,) * data.ndim, has_memory_here=False)))


def _boxes_of(array: Any) -> list[tuple[Ranges, Any]]:
    """The boxes of an array on the devices of this process, each once, in an order that is the same on all processes."""
    return [(ranges, array.addressable_data(number)) for ranges, number in _boxes(array.sharding, array.shape)]


@functools.lru_cache(_REMEMBERED)
def _boxes(sharding: Any, shape: tuple[int, ...]) -> list[tuple[Ranges, int]]:
    """The boxes of the arrays of a sharding, each with the number of a device of this process that holds it."""
    indices = sharding.addressable_devices_indices_map(shape).values()
    return sorted({_ranges(index, shape): number for number, index in enumerate(indices)}.items())


def _all_hold_all(array: Any) -> bool:
    if not array.is_fully_replicated:
        return False
    processes = {device.process_index for device in array.sharding.device_set}
    return len(processes) == int(jax.process_count())


@functools.lru_cache(_REMEMBERED)
def _holders(sharding: Any, shape: tuple[int, ...]) -> Mapping[Ranges, tuple[int, ...]]:
    """For each box of the arrays of a sharding, the numbers of the processes whose devices hold it."""
    holders: dict[Ranges, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        holders.setdefault(_ranges(index, shape), set()).add(device.process_index)
    return {ranges: tuple(sorted(processes)) for ranges, processes in holders.items()}


def _layout(sharding: Any, shape: tuple[int, ...]) -> str:
    """Describes a sharding in words that are the same on all processes."""
    parts = f"in {len(_holders(sharding, shape))} parts of {sharding.shard_shape(shape)}"
    if isinstance(sharding, jax.sharding.NamedSharding):
        mesh = ", ".join(f"{name}={length}" for name, length in sharding.mesh.shape.items())
        return f"{parts}, sharded as {sharding.spec} over the mesh ({mesh})"
    return f"{parts}, sharded over {len(sharding.device_set)} devices by a {type(sharding).__name__}"


def _ranges(index: tuple[slice, ...], shape: tuple[int, ...]) -> Ranges:
    return tuple(part.indices(length)[:2] for part, length in zip(index, shape, strict=True))


def _size(ranges: Ranges) -> int:
    return math.prod(stop - start for start, stop in ranges)


def _slices(ranges: Ranges) -> Slices:
    return tuple([slice(start, stop) for start, stop in ranges])


def _box_of(ranges: Ranges) -> TensorSlice:
    return TensorSlice(tuple((start, stop - start) for start, stop in ranges))


def _box(stored: Array | StoredTensor, ranges: Ranges) -> Array:
    if isinstance(stored, np.ndarray):
        part = stored[_slices(ranges)]
        return part if part.size == stored.size else part.copy()
    return stored.read(_box_of(ranges))


def are_read_at_once(where: Whereabouts, shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether `numpy.asarray` is all that it takes to read an array of this shape and element type that lies there."""
    is_small = math.prod(shape) * dtype.itemsize <= _COPIED
    return where.device is not None and is_small and _has_memory_here(where, dtype)


def _has_memory_here(where: Whereabouts, dtype: Any) -> bool:
    """Whether NumPy can read the memory of an array that lies there, or of each of its boxes, without a copy."""
    return where.on_cpu and not _is_packed(dtype)


@functools.cache
def _is_packed(dtype: Any) -> bool:
    """Whether several elements share a byte in the memory of a device, as those of 4 bits do."""
    if dtype.itemsize > 1 or dtype.kind == "b":
        return False
    described = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    return int(described.bits) < _BITS


def _pieces(data: Any, start: tuple[int, ...], *, has_memory_here: bool) -> Iterator[Piece]:
    """The pieces of the array on one device. No piece takes much memory."""
    if has_memory_here:
        yield Piece(start, data.shape, np.asarray(data))
        return
    rows = data.shape[0] if data.shape else 1
    most = max(1, _FETCHED * rows // max(data.nbytes, 1))
    is_plain = data.sharding.memory_kind in (None, "device")
    if rows <= most or not is_plain:
        yield Piece(start, data.shape, _Fetched(data, 0, None))
        return
    for first in range(0, rows, most):
        count = min(most, rows - first)
        yield Piece((start[0] + first, *start[1:]), (count, *data.shape[1:]), _Fetched(data, first, count))


class _Fetched(OnDevice):
    """Rows of an array on a device. They are fetched when the first is read, and freed when the last is read.

    Args:
        data: The array, on one device.
        first: The first row.
        count: How many rows; None for the whole array.
    """

    def __init__(self, data: Any, first: int, count: int | None) -> None:
        self._data, self._first, self._count = data, first, count
        self._lock = ForkableLock()
        self._here: Array | None = None
        self._given = 0

    def __getitem__(self, box: Slices) -> Array:
        with self._lock:
            here = self._here
            if here is None:
                here = self._here = self._fetch()
                self._given = 0
            part = here[box]
            self._given += part.size
            if self._given >= here.size:
                self._here = None
        return part

    def _fetch(self) -> Array:
        if self._count is None:
            # Another array of the same memory: the copy is kept in that one, and freed with it.
            again = jax.make_array_from_single_device_arrays(self._data.shape, self._data.sharding, [self._data])
        else:
            again = jax.lax.dynamic_slice_in_dim(self._data, self._first, self._count)
        return np.asarray(again)

    @classmethod
    def held(cls, sources: Sequence[_Fetched]) -> Sequence[PieceSource] | None:
        arrays = {id(source._data): source._data for source in sources}
        copies = copied_to_host(list(arrays.values()))
        if copies is None:
            return None
        by_identity = dict(zip(arrays, copies, strict=True))
        return [_Held(by_identity[id(source._data)], source._first, source._count) for source in sources]


class _Held:
    """Rows of a copy in the memory of this machine, which may not be complete before it is read.

    Args:
        data: The copy, an array of JAX.
        first: The first row.
        count: How many rows; None for the whole array.
    """

    def __init__(self, data: Any, first: int, count: int | None) -> None:
        self._data, self._first, self._count = data, first, count

    def __getitem__(self, box: Slices) -> Array:
        here = np.asarray(self._data)
        return (here if self._count is None else here[self._first : self._first + self._count])[box]

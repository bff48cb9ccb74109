"""The elements of JAX's arrays, device by device: how they are written to files, and how they are read back.

Nothing is gathered. An array that is spread over devices is written from the memory of each, and each device gets its own
box of a saved tensor. Nothing is kept in an array either, as `numpy.asarray` keeps what it has copied from a device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from milepost.graph.adapter import Array, StoredTensor
from milepost.tensor import Piece, PiecewiseArray, TensorSlice
from milepost.tensor.pieces import Box

_BITS: Final = 8
"""Bits of a byte."""
_FETCHED: Final = 16 << 20
"""Bytes that are fetched from a device at once, where a row has no more."""


def elements(array: Any) -> Array | PiecewiseArray | None:
    """The elements of a `jax.Array`; None if this process has not all of them.

    On CPU they are the array's own memory, which nobody can change. What lies on other devices is fetched when it is
    written.
    """
    if array.is_fully_replicated and _has_memory_here(array):
        return np.asarray(array)
    shards = {tuple((part.start, part.stop) for part in shard.index): shard for shard in array.addressable_shards}
    if sum(shard.data.size for shard in shards.values()) < array.size:
        return None
    pieces = [
        piece
        for shard in shards.values()
        for piece in _pieces(shard.data, tuple(part.start or 0 for part in shard.index))
    ]
    return PiecewiseArray(array.dtype, array.shape, pieces)


def spread(stored: Array | StoredTensor, sharding: Any) -> list[Any]:
    """Arrays on the devices of a sharding that this process has, each with its own box of a saved tensor.

    Replicas have one reading.
    """
    shape = stored.shape
    read: dict[tuple[tuple[int, int], ...], Array] = {}
    made = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        ranges = tuple(part.indices(length)[:2] for part, length in zip(index, shape, strict=True))
        box = read.get(ranges)
        if box is None:
            box = read[ranges] = _box(stored, ranges)
        place = jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
        made.append(jax.device_put(box, place))
    return made


def _box(stored: Array | StoredTensor, ranges: tuple[tuple[int, int], ...]) -> Array:
    if isinstance(stored, np.ndarray):
        part = stored[tuple(slice(start, stop) for start, stop in ranges)]
        return part if part.size == stored.size else part.copy()
    return stored.read(TensorSlice(tuple((start, stop - start) for start, stop in ranges)))


def _has_memory_here(array: Any) -> bool:
    """Whether NumPy can look into the memory of an array, and so makes no copy of it."""
    device = next(iter(array.sharding.device_set))
    return device.platform == "cpu" and not _is_packed(array.dtype)


def _is_packed(dtype: Any) -> bool:
    """Whether several elements share a byte in the memory of a device, as those of 4 bits do."""
    if dtype.itemsize > 1 or dtype.kind == "b":
        return False
    described = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    return int(described.bits) < _BITS


def _pieces(data: Any, start: tuple[int, ...]) -> Iterator[Piece]:
    """The pieces of what one device has, none of which takes much memory."""
    if _has_memory_here(data):
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


class _Fetched:
    """Rows of an array on a device, which are fetched when the first is asked for, and let go with the last.

    Args:
        data: The array, on one device.
        first: The first row.
        count: How many rows; None for the whole array.
    """

    def __init__(self, data: Any, first: int, count: int | None) -> None:
        self._data, self._first, self._count = data, first, count
        self._lock = threading.Lock()
        self._here: Array | None = None
        self._given = 0

    def __getitem__(self, box: Box) -> Array:
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
            # Another array of the same memory, so that the copy is not kept in this one.
            again = jax.make_array_from_single_device_arrays(self._data.shape, self._data.sharding, [self._data])
        else:
            again = jax.lax.dynamic_slice_in_dim(self._data, self._first, self._count)
        return np.asarray(again)

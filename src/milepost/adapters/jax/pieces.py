"""The elements of JAX's arrays, device by device: how a save reads them, and how a restore places them.

Nothing is gathered. An array that is spread over devices is written from the memory of each device. A restore gives each device
its own box of the saved tensor. `numpy.asarray` would keep the copy that it makes of an array on a device; the functions here keep
none.
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
"""How many bytes are fetched from a device at once; a row that is longer is fetched whole."""


def elements(array: Any) -> Array | PiecewiseArray | None:
    """The elements of a `jax.Array`, or None if this process does not have all of them.

    On a CPU they are the array's own memory, which cannot change. Elements on other devices are fetched when they are written.
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
    """Makes the arrays of a sharding on the devices of this process, each with its own box of a saved tensor.

    A box that several devices hold is read once.
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
    """Whether NumPy can read the memory of an array without a copy."""
    device = next(iter(array.sharding.device_set))
    return device.platform == "cpu" and not _is_packed(array.dtype)


def _is_packed(dtype: Any) -> bool:
    """Whether several elements share a byte in the memory of a device, as those of 4 bits do."""
    if dtype.itemsize > 1 or dtype.kind == "b":
        return False
    described = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    return int(described.bits) < _BITS


def _pieces(data: Any, start: tuple[int, ...]) -> Iterator[Piece]:
    """The pieces of the array on one device. No piece takes much memory."""
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
    """Rows of an array on a device. They are fetched when the first is read, and freed when the last is read.

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
            # Another array of the same memory: the copy is kept in that one, and freed with it.
            again = jax.make_array_from_single_device_arrays(self._data.shape, self._data.sharding, [self._data])
        else:
            again = jax.lax.dynamic_slice_in_dim(self._data, self._first, self._count)
        return np.asarray(again)

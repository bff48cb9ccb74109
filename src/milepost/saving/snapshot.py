"""Snapshots: copies of the values, from which an asynchronous save writes while the program continues.

Memory that was never used before is slow: the system clears each page when it is first written. So the memory of the copies is kept, and
the next asynchronous save of the same checkpoint copies into it. Values that never change are not copied.

A device may copy its values by itself (`milepost.tensor.OnDevice.held`). Otherwise the memory for its values is made in one piece, which the
device prepares.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable, Sequence
from functools import partial
from operator import call
from typing import Any, Final

import numpy as np

from milepost.bundle import for_each
from milepost.graph.adapter import Array
from milepost.tensor import OnDevice, PiecewiseArray

_SMALL: Final = 64 << 10
"""The most bytes of memory that is not kept."""
_WORTH_THREADS: Final = 8 << 20
"""The least bytes that several threads copy faster than one."""
_FILLED: Final = 16 << 20
"""How many bytes of new memory a thread clears at a time."""
_ALIGNMENT: Final = 64
"""Bytes at whose multiples the copies begin in memory that they share."""


class SnapshotMemory:
    """The memory of the snapshots of one checkpoint, which saves once at a time.

    Example:
        >>> memory, weights = SnapshotMemory(), np.ones(1 << 20)
        >>> (first,) = memory.copy([weights])
        >>> weights += 1
        >>> (second,) = memory.copy([weights])
        >>> float(second[0]), np.shares_memory(first, second)
        (2.0, True)
    """

    def __init__(self) -> None:
        self._blocks: dict[int, list[Array]] = {}
        self._prepared: dict[int, list[Array]] = {}
        """The memory by its size: that of values of this machine, and that of values of devices."""

    def copy(self, arrays: Sequence[Array | PiecewiseArray]) -> list[Array | PiecewiseArray]:
        """Copies values.

        Args:
            arrays: The values.

        Returns:
            The copies. They are valid until the next call, and until `release`.
        """
        spare, self._blocks = self._blocks, {}
        copies: list[Array | PiecewiseArray] = []
        on_device: list[tuple[int, PiecewiseArray]] = []
        work: list[Callable[[], None]] = []
        for array in _with_held(arrays):
            size = array.nbytes
            if isinstance(array, PiecewiseArray) and array.constant:
                copies.append(array)
            elif array.dtype.hasobject or size <= _SMALL:
                copies.append(array.copy())
            elif isinstance(array, PiecewiseArray) and array.on_device:
                on_device.append((len(copies), array))
                copies.append(array)
            else:
                fitting = spare.get(size)
                block = fitting.pop() if fitting else np.empty(size, np.uint8)
                self._blocks.setdefault(size, []).append(block)
                copies.append(block.view(array.dtype).reshape(array.shape))
                work.append(partial(_copy_into, copies[-1], array))
        del spare
        if sum(size * len(blocks) for size, blocks in self._blocks.items()) >= _WORTH_THREADS:
            for_each(call, work)
        else:
            for each in work:
                each()
        for (position, array), block in zip(
            on_device, self._prepared_for([each for _, each in on_device]), strict=True
        ):
            copies[position] = copy = block.view(array.dtype).reshape(array.shape)
            array.copy_into(copy)
        return copies

    def _prepared_for(self, arrays: Sequence[PiecewiseArray]) -> list[Array]:
        """Memory for the elements of each of some values that lie on devices."""
        spare, self._prepared = self._prepared, {}
        blocks = [fitting.pop() if (fitting := spare.get(array.nbytes)) else None for array in arrays]
        del spare
        missing = [array for array, block in zip(arrays, blocks, strict=True) if block is None]
        new = iter(_new_memory(missing))
        prepared = [next(new) if block is None else block for block in blocks]
        for block in prepared:
            self._prepared.setdefault(block.nbytes, []).append(block)
        return prepared

    def release(self) -> None:
        """Gives the memory back, as soon as no copy is used any more."""
        self._blocks = {}
        self._prepared = {}

    # A copy of a checkpoint has no snapshots.

    def __deepcopy__(self, memo: object) -> SnapshotMemory:
        return SnapshotMemory()

    def __reduce__(self) -> tuple[type[SnapshotMemory], tuple[()]]:
        return SnapshotMemory, ()


def _with_held(arrays: Sequence[Array | PiecewiseArray]) -> Sequence[Array | PiecewiseArray]:
    """The same values, with those in the place of others that their devices copy by themselves."""
    kinds: dict[type[OnDevice], list[tuple[int, PiecewiseArray]]] = {}
    for position, array in enumerate(arrays):
        if type(array) is PiecewiseArray and array.on_device:
            kinds.setdefault(type(array.on_device[0]), []).append((position, array))
    values = list(arrays)
    for kind, members in kinds.items():
        constant_sources = kind.held([source for _, array in members for source in array.on_device])
        if constant_sources is None:
            continue
        sources = iter(constant_sources)
        for position, array in members:
            values[position] = array.held(list(itertools.islice(sources, len(array.on_device))))
    return values


def _new_memory(arrays: Sequence[PiecewiseArray]) -> list[Array]:
    """New memory for the elements of each of some values that lie on devices, all in one piece, which the first device prepares."""
    if not arrays:
        return []
    starts = [0]
    for array in arrays:
        starts.append(-(-(starts[-1] + array.nbytes) // _ALIGNMENT) * _ALIGNMENT)
    pages = -(-starts[-1] // mmap.PAGESIZE) * mmap.PAGESIZE
    owner = np.empty(pages + mmap.PAGESIZE, np.uint8)
    begin = -owner.ctypes.data % mmap.PAGESIZE
    whole = owner[begin : begin + pages]
    for_each(lambda part: part.fill(0), [whole[start : start + _FILLED] for start in range(0, pages, _FILLED)])
    arrays[0].on_device[0].prepare(whole)
    return [whole[start : start + array.nbytes] for start, array in zip(starts, arrays, strict=False)]


def _copy_into(copy: Any, array: Array | PiecewiseArray) -> None:
    if isinstance(array, PiecewiseArray):
        array.copy_into(copy)
    else:
        np.copyto(copy, array)

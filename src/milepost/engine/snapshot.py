"""Snapshots: copies of the values, from which an asynchronous save writes while the program continues.

Memory that was never used before is slow: the system clears each page when it is first written. So the memory of the copies is kept, and
the next asynchronous save of the same checkpoint copies into it. Values that never change are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import call
from typing import Any, Final

import numpy as np

from milepost.bundle import for_each
from milepost.graph.adapter import Array
from milepost.tensor import PiecewiseArray

_SMALL: Final = 64 << 10
"""The most bytes of memory that is not kept."""
_WORTH_THREADS: Final = 8 << 20
"""The least bytes that several threads copy faster than one."""


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

    def copy(self, arrays: Sequence[Array | PiecewiseArray]) -> list[Array | PiecewiseArray]:
        """Copies values.

        Args:
            arrays: The values.

        Returns:
            The copies. They are valid until the next call, and until `release`.
        """
        spare, self._blocks = self._blocks, {}
        copies: list[Array | PiecewiseArray] = []
        work: list[Callable[[], None]] = []
        for array in arrays:
            size = array.nbytes
            if isinstance(array, PiecewiseArray) and array.constant:
                copies.append(array)
            elif array.dtype.hasobject or size <= _SMALL:
                copies.append(array.copy())
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
        return copies

    def release(self) -> None:
        """Gives the memory back, as soon as no copy is used any more."""
        self._blocks = {}

    # A copy of a checkpoint has no snapshots.

    def __deepcopy__(self, memo: object) -> SnapshotMemory:
        return SnapshotMemory()

    def __reduce__(self) -> tuple[type[SnapshotMemory], tuple[()]]:
        return SnapshotMemory, ()


def _copy_into(copy: Any, array: Array | PiecewiseArray) -> None:
    if isinstance(array, PiecewiseArray):
        array.copy_into(copy)
    else:
        np.copyto(copy, array)

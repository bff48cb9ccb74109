"""Buffers of every kind as flat bytes."""

from __future__ import annotations

import numpy as np

from milepost.storage.interface import Buffer


def byte_view(buffer: Buffer) -> memoryview:
    """The memory of a buffer, without a copy.

    ``memoryview(array).cast("B")`` would do for most arrays, but not for empty ones, nor for element types that NumPy
    learnt from ``ml_dtypes``.

    Raises:
        ValueError: The buffer does not lie in memory in one piece.
    """
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.c_contiguous:
            raise ValueError("only contiguous arrays can be read and written")
        return memoryview(buffer.reshape(-1).view(np.uint8))
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())

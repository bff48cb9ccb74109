"""What the storages have in common: buffers of every kind as flat bytes, and the bounds of a file."""

from __future__ import annotations

import numpy as np

from milepost.errors import CorruptCheckpointError
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


def check_range(path: str, offset: int, length: int, size: int) -> None:
    """Refuses to read outside a file. Offsets and lengths may come from damaged files, so nothing is allocated before.

    Raises:
        CorruptCheckpointError: Not all of the bytes are in a file of ``size`` bytes.
    """
    if offset < 0 or length < 0:
        raise CorruptCheckpointError("bytes before the beginning of a file", file=path, found=(offset, length))
    if offset + length > size:
        raise CorruptCheckpointError(
            "the file is truncated", file=path, expected=f"at least {offset + length} bytes", found=f"{size} bytes"
        )

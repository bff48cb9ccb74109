"""What every storage checks and converts: buffers of every kind as flat bytes, and ranges of bytes in a file."""

from __future__ import annotations

import numpy as np

from milepost.errors import CorruptCheckpointError
from milepost.storage.interface import Buffer


def byte_view(buffer: Buffer) -> memoryview:
    """The memory of a buffer as flat bytes, without a copy.

    ``memoryview(array).cast("B")`` fails for empty arrays, and for the element types of ``ml_dtypes`` such as ``bfloat16``.

    Args:
        buffer: Bytes, or an array of any element type and shape.

    Returns:
        A view, which is writable if the buffer is.

    Raises:
        ValueError: The buffer does not lie in memory in one piece. An array with strides, for example, does not.

    Example:
        >>> bytes(byte_view(np.array([[104, 105]], np.uint8)))
        b'hi'
    """
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.c_contiguous:
            raise ValueError("only contiguous arrays can be read and written")
        return memoryview(buffer.reshape(-1).view(np.uint8))
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def check_range(path: str, offset: int, length: int, size: int) -> None:
    """Raises an error if a range is outside a file. Call it before allocating memory, since the file may be damaged.

    Args:
        path: The file, for the error.
        offset: The first byte.
        length: The number of bytes.
        size: The size of the file in bytes.

    Raises:
        CorruptCheckpointError: Not all of the bytes are in the file.

    Example:
        >>> check_range("ckpt.index", 0, 10, size=10)
        >>> check_range("ckpt.index", 8, 3, size=10)
        Traceback (most recent call last):
        milepost.errors.CorruptCheckpointError: the file is truncated
          file: ckpt.index
          expected: at least 11 bytes
          found: 10 bytes
          remedy: use an intact copy or another checkpoint; milepost.latest_checkpoint() skips damaged ones
    """
    if offset < 0 or length < 0:
        raise CorruptCheckpointError("bytes before the beginning of a file", file=path, found=(offset, length))
    if offset + length > size:
        raise CorruptCheckpointError(
            "the file is truncated", file=path, expected=f"at least {offset + length} bytes", found=f"{size} bytes"
        )

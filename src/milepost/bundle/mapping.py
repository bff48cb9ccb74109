"""Bytes of local files as memory."""

from __future__ import annotations

import mmap
import os

import numpy as np

from milepost.bundle.memory import Bytes
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError


def map_bytes(path: str, offset: int, size: int) -> Bytes:
    """Maps part of a file.

    Args:
        path: A local file.
        offset: The first byte.
        size: The number of bytes.

    Returns:
        A read-only array, valid for as long as it is used, also when the file is removed.

    Raises:
        CheckpointNotFoundError: There is no such file.
        CorruptCheckpointError: The file ends before.
        StorageError: The operating system could not map it.
    """
    if not size:
        return np.frombuffer(b"", np.uint8)
    start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    length = offset - start + size
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=start)
    except FileNotFoundError:
        raise CheckpointNotFoundError("cannot map: there is no such file", file=path) from None
    except ValueError:
        raise CorruptCheckpointError(
            "the file is truncated", file=path, expected=f"at least {offset + size} bytes"
        ) from None
    except OSError as error:
        raise StorageError(f"cannot map: {os.strerror(error.errno or 0)}", errno=error.errno, file=path) from error
    return np.frombuffer(mapped, np.uint8, size, offset - start)

"""Maps bytes of local files into memory."""

from __future__ import annotations

import mmap
import os

import numpy as np

from milepost.bundle.memory import Bytes
from milepost.errors import CorruptCheckpointError, MilepostError, StorageError
from milepost.storage.local_files import LocalFile


def map_bytes(file: LocalFile, offset: int, size: int) -> Bytes:
    """Maps part of a file.

    Args:
        file: An open local file. It may have been renamed or removed.
        offset: The first byte.
        size: The number of bytes.

    Returns:
        A read-only array. It stays valid when the file is removed.

    Raises:
        CorruptCheckpointError: The file is too short.
        StorageError: The operating system cannot map the file.
    """
    if not size:
        return np.frombuffer(b"", np.uint8)
    start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    length = offset - start + size
    try:
        mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=start)
    except MilepostError:
        raise
    except (ValueError, OSError) as error:
        # for a file that is too short, POSIX systems raise one of them, and Windows the other
        if os.fstat(file.fileno()).st_size < offset + size:
            raise CorruptCheckpointError(
                "the file is truncated", file=file.path, expected=f"at least {offset + size} bytes"
            ) from None
        code = getattr(error, "errno", None) or 0
        reason = os.strerror(code) if code else error
        raise StorageError(
            f"cannot map: {reason}",
            errno=code,
            file=file.path,
            remedy="read the tensor into memory, with get_tensor() instead of map_tensor(), or load() without mapped=True",
        ) from error
    return np.frombuffer(mapped, np.uint8, size, offset - start)

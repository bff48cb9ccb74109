"""Which errors show that a checkpoint is damaged or missing, and which say nothing about it."""

from __future__ import annotations

import errno

from milepost.errors import MilepostError, StorageError


def concerns_file(error: MilepostError) -> bool:
    """Whether an error shows that a checkpoint is damaged or missing, so that an older one is to be used.

    A disk that cannot read its blocks (``EIO``) has damaged the file. Any other error of the operating system does not concern the file.

    Example:
        >>> concerns_file(StorageError("cannot read", errno=errno.EIO)), concerns_file(StorageError("cannot open", errno=errno.EACCES))
        (True, False)
    """
    return not isinstance(error, StorageError) or error.errno == errno.EIO

"""milepost's errors for errors of the operating system, each with a remedy."""

from __future__ import annotations

import errno
import os
from typing import Final, NoReturn

from milepost.errors import CheckpointNotFoundError, MilepostError, StorageError
from milepost.storage.operating_system import system
from milepost.storage.paths import ImpossiblePathError

_REMEDIES = {
    errno.ENOMEM: "free memory on this machine, and try again",
    errno.ENOSPC: "free space on the device, or save elsewhere; the previous checkpoint is untouched",
    errno.EDQUOT: "raise the quota, or save elsewhere; the previous checkpoint is untouched",
    errno.EROFS: "save to a directory that can be written",
    errno.EACCES: system.REMEDY_FOR_ACCESS,
    errno.EPERM: system.REMEDY_FOR_ACCESS,
    errno.EIO: "check the disk: the log of the system has more about the fault",
    errno.ESTALE: "try again: the server of this network file system has replaced or removed the file",
    errno.EFBIG: "raise the limit of the size of a file (ulimit -f), or divide the save by milepost.MaxShardSizePolicy",
    errno.ENFILE: "close files in other programs: this machine cannot open more",
    errno.EMFILE: "close files that are no longer needed, or raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name; while a save runs, names of its files are 50 characters longer",
    errno.ELOOP: "repair the symbolic link, which leads back to itself",
}

_CREATIONS: Final = ("create", "make a directory")
_REMEDY_FOR_CREATION: Final = "let this user write to the directory, or save to another one"


def raise_explained(error: OSError, doing: str, path: str, *, reading: bool = False) -> NoReturn:
    """Raises milepost's error for an error of the system. To a reader, an impossible path is one that does not exist."""
    if isinstance(error, MilepostError):
        raise error
    if isinstance(error, FileNotFoundError):
        raise CheckpointNotFoundError(f"cannot {doing}: there is no such file or directory", file=path) from None
    code = error.errno or 0
    is_impossible = isinstance(error, ImpossiblePathError)
    reason = error.strerror if is_impossible else os.strerror(code) if code else error
    if reading and (is_impossible or code in system.NOTHING_THERE):
        raise CheckpointNotFoundError(f"cannot {doing}: {reason}", file=path) from None
    if isinstance(error, ImpossiblePathError):
        raise error.as_storage_error(doing, path) from error
    remedy = _REMEDIES.get(code)
    if doing in _CREATIONS and code in (errno.EACCES, errno.EPERM):
        remedy = _REMEDY_FOR_CREATION
    raise StorageError(f"cannot {doing}: {reason}", errno=code, file=path, remedy=remedy) from error


def is_full(error: StorageError) -> bool:
    """Whether an error says that a device, or the quota of a user, has no room left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def says_that_nothing_is_there(error: OSError) -> bool:
    """Whether an error of the system means that no file or directory has the path."""
    return isinstance(error, ImpossiblePathError) or error.errno in system.NOTHING_THERE


def in_the_way(error: OSError, path: str, place: str) -> StorageError:
    """The error for a directory that cannot be made because a file has its name, or that of a directory above it."""
    above = os.path.abspath(place)
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    return StorageError(
        f"cannot make a directory: {os.strerror(error.errno or 0)}",
        errno=error.errno,
        file=path,
        expected="a directory, or nothing",
        found=f"{above}, which is not a directory",
        remedy="save to another directory, or rename or remove that file",
    )

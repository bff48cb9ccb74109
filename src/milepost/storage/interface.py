"""The few file operations that checkpoints need, and what each promises about a crash.

Paths are strings, joined by `os.path.join`: with ``/``, and on Windows with ``\\``. A storage gives them their meaning; on Windows
it should take both for the same. Errors of the operating system come out as
`StorageError`, a path that does not exist as `CheckpointNotFoundError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

Buffer = bytes | bytearray | memoryview | np.ndarray[Any, Any]
"""Contiguous bytes: also an array of any element type that lies in memory in one piece. Writable where it is a destination."""


class ReadableFile(Protocol):
    """A file open for reading at any position, from any thread. It stays readable if the file is removed, where it can be."""

    @property
    def path(self) -> str:
        """The path it was opened by."""
        ...

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Reads exactly ``length`` bytes.

        Args:
            offset: Bytes from the beginning of the file. It may come from a damaged file, and be any number.
            length: Bytes, also any number.

        Raises:
            CorruptCheckpointError: The file ends before.
            StorageError: The operating system could not read.
        """
        ...

    def read_into(self, offset: int, buffer: Buffer) -> None:
        """Fills ``buffer`` with the bytes from ``offset`` on; errors as for `read`.

        Raises:
            ValueError: The buffer does not lie in memory in one piece.
        """
        ...

    def close(self) -> None:
        """Lets go of the file. Closing twice does nothing."""
        ...


class WritableFile(Protocol):
    """A new file, written at any position, from any thread."""

    @property
    def path(self) -> str:
        """The path it was created with."""
        ...

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Writes the buffers one after the other from ``offset`` on. Bytes before it that nobody wrote are zeros.

        Raises:
            StorageError: The operating system could not write, for example because the disk is full.
        """
        ...

    def sync(self) -> None:
        """Returns when what was written survives a power cut. Not to be tried again after a failure.

        Raises:
            StorageError: The file may have lost data and must be given up.
        """
        ...

    def close(self) -> None:
        """Lets go of the file, and of its claim to be in use. Closing twice does nothing."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class Storage(Protocol):
    """A tree of directories and files, as ``CheckpointOptions(storage=...)`` takes it.

    Any class with these methods is one, and need not derive from this. All methods may be called from any thread. A system's
    errors are raised as `StorageError`, with the path as its ``file`` and the system's number as its ``errno``.

    What a save relies on: what `WritableFile.sync` and `sync_directory` have returned from survives a power cut, and `rename`
    replaces a file as a whole. Nothing is assumed about the order of anything in between. The page ``docs/extending.md`` says
    which object stores can be a storage.

    Example:
        >>> from milepost.storage import LocalStorage, Storage
        >>> class Counting(LocalStorage):
        ...     created = 0
        ...     def create(self, path):
        ...         self.created += 1
        ...         return super().create(path)
        >>> import milepost, tempfile
        >>> storage: Storage = Counting()
        >>> options = milepost.CheckpointOptions(storage=storage)
        >>> path = milepost.Checkpoint(w=milepost.Variable(1.0)).write(tempfile.mkdtemp() + "/ckpt", options)
        >>> storage.created
        2
    """

    def open(self, path: str) -> ReadableFile:
        """Opens a file for reading.

        Raises:
            CheckpointNotFoundError: There is no such file.
            CorruptCheckpointError: It is a directory.
        """
        ...

    def create(self, path: str) -> WritableFile:
        """Creates a file that must not exist yet, and claims it as in use until it is closed.

        Raises:
            CheckpointNotFoundError: There is no such directory; a storage without directories makes it.
            StorageError: Something exists there, with ``errno`` EEXIST; or a file is where a directory should be, with ENOTDIR.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames a file, replacing the target if there is one. Atomic; durable after `sync_directory`.

        A reader that has the old target open reads on in it. A file that `create` made can be renamed while it is open.

        Raises:
            CheckpointNotFoundError: There is no such file.
            StorageError: The target is a directory, with ``errno`` EISDIR; the source stays. Or the system cannot rename the file.
                Where files that somebody reads cannot be replaced, as on Windows, the error number is ``EACCES``, and both files
                stay as they were.
        """
        ...

    def remove(self, path: str) -> None:
        """Removes a file; one that does not exist is no error. Durable after `sync_directory`.

        Raises:
            StorageError: It is a directory. Or the system cannot remove it. Where files that somebody reads cannot be removed, as on
                Windows, the error number is ``EACCES``, and the file stays.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Makes a directory and its parents, durably; one that exists is no error.

        Raises:
            StorageError: A file is in its place, or in that of a parent.
        """
        ...

    def sync_directory(self, path: str) -> None:
        """Returns when the names in the directory survive a power cut; at once on systems that cannot sync one (Windows).

        Raises:
            CheckpointNotFoundError: There is no such directory.
            StorageError: The names may be lost. Unlike a file, the directory may be synced again.
        """
        ...

    def list(self, directory: str) -> list[str]:
        """The names of files and directories right inside a directory, sorted; empty if it does not exist."""
        ...

    def is_file(self, path: str) -> bool:
        """Whether a regular file exists there.

        Raises:
            StorageError: The operating system could not tell; so too for the other questions below.
        """
        ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory exists there."""
        ...

    def modified(self, path: str) -> float:
        """When the file was last written, in seconds since the epoch. Renaming does not change it.

        Raises:
            CheckpointNotFoundError: There is no such file.
        """
        ...

    def in_use(self, path: str) -> bool:
        """Whether a living process has the file open from `create`."""
        ...

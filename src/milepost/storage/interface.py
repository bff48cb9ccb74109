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
"""Contiguous bytes. Writable where it is a destination."""


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

        Raises:
            CorruptCheckpointError: The file ends before.
            StorageError: The operating system could not read.
        """
        ...

    def read_into(self, offset: int, buffer: Buffer) -> None:
        """Fills ``buffer`` with the bytes from ``offset`` on; errors as for `read`."""
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
        """Writes the buffers one after the other from ``offset`` on.

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
    """A tree of directories and files."""

    def open(self, path: str) -> ReadableFile:
        """Opens a file for reading.

        Raises:
            CheckpointNotFoundError: There is no such file.
            CorruptCheckpointError: It is a directory.
        """
        ...

    def create(self, path: str) -> WritableFile:
        """Creates a file that must not exist yet, and claims it as in use until it is closed."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames a file, replacing the target if there is one. Atomic; durable after `sync_directory`.

        A file that `create` made can be renamed while it is open.

        Raises:
            CheckpointNotFoundError: There is no such file.
            StorageError: The system could not rename it. Where files that somebody reads cannot be replaced, as on Windows, the
                error number is ``EACCES``, and both files stay as they were.
        """
        ...

    def remove(self, path: str) -> None:
        """Removes a file; one that does not exist is no error. Durable after `sync_directory`.

        Raises:
            StorageError: The system could not remove it. Where files that somebody reads cannot be removed, as on Windows, the
                error number is ``EACCES``, and the file stays.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Makes a directory and its parents, durably; one that exists is no error."""
        ...

    def sync_directory(self, path: str) -> None:
        """Returns when the names in the directory survive a power cut; at once where there is no way to see to it (Windows)."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it does not exist."""
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
        """When the file was last written, in seconds since the epoch."""
        ...

    def in_use(self, path: str) -> bool:
        """Whether a living process has the file open from `create`."""
        ...

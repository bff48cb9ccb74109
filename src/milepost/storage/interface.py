"""The few file operations that checkpoints need, and what each promises about a crash.

Paths are strings, joined by `os.path.join`: with ``/``, and on Windows with ``\\``. A storage defines what they mean. On
Windows it should accept both separators. An error of the operating system is raised as `StorageError`, and a path that does not
exist raises `CheckpointNotFoundError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

Buffer = bytes | bytearray | memoryview | np.ndarray[Any, Any]
"""Bytes, or an array of any element type that lies in memory in one piece. A destination is writable."""


class ReadableFile(Protocol):
    """A file open for reading at any position, from any thread. It stays readable if the file is removed, on systems that allow that."""

    @property
    def path(self) -> str:
        """The path with which it was opened."""
        ...

    @property
    def size(self) -> int:
        """The size of the file in bytes when it was opened."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Reads exactly ``length`` bytes.

        Args:
            offset: The position of the first byte. It may come from a damaged file, and so be any number.
            length: The number of bytes. It may also come from a damaged file.

        Raises:
            CorruptCheckpointError: The file is too short.
            StorageError: The operating system cannot read it.
        """
        ...

    def read_into(self, offset: int, buffer: Buffer) -> None:
        """Fills ``buffer`` with the bytes from ``offset`` on. Errors are those of `read`.

        Raises:
            ValueError: The buffer does not lie in memory in one piece.
        """
        ...

    def close(self) -> None:
        """Closes the file. Closing it twice does nothing."""
        ...


class WritableFile(Protocol):
    """A new file, written at any position, from any thread."""

    @property
    def path(self) -> str:
        """The path with which it was created."""
        ...

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Writes the buffers one after the other from ``offset`` on. Bytes before it that were never written are zeros.

        Raises:
            StorageError: The operating system cannot write, for example because the disk is full.
        """
        ...

    def sync(self) -> None:
        """Returns when the written data survives a power cut. It must not be called again after a failure.

        Raises:
            StorageError: The file may have lost data, and must not be used any more.
        """
        ...

    def close(self) -> None:
        """Closes the file, which is no longer in use then. Closing it twice does nothing."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...


class Storage(Protocol):
    """A tree of directories and files, for ``CheckpointOptions(storage=...)``.

    Any class with these methods is a storage. It need not derive from this class. All methods may be called from any thread. An
    error of the system is raised as `StorageError`, with the path as its ``file`` and the system's error number as its ``errno``.

    A save relies on two promises: what was synced by `WritableFile.sync` and `sync_directory` survives a power cut, and `rename`
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
            CorruptCheckpointError: The path is that of a directory.
        """
        ...

    def create(self, path: str) -> WritableFile:
        """Creates a file that must not exist yet, and claims it as in use until it is closed.

        Raises:
            CheckpointNotFoundError: The directory does not exist. A storage may make it instead.
            StorageError: The path exists already, with ``errno`` EEXIST. Or a part of the path is a file and not a directory, with
                ENOTDIR.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames a file, and replaces the target if it exists. It is atomic, and durable after `sync_directory`.

        A reader that has the old target open can still read it. A file that `create` made can be renamed while it is open.

        Raises:
            CheckpointNotFoundError: There is no such file.
            StorageError: The target is a directory, with ``errno`` EISDIR, and the source is unchanged. Or the system cannot rename
                the file. On systems that cannot replace an open file, such as Windows, the error number is ``EACCES``, and both
                files are unchanged.
        """
        ...

    def remove(self, path: str) -> None:
        """Removes a file. Does nothing if the file does not exist. It is durable after `sync_directory`.

        Raises:
            StorageError: The path is that of a directory, or the system cannot remove the file. On systems that cannot remove an
                open file, such as Windows, the error number is ``EACCES``, and the file stays.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Makes a directory and its parents, durably. Does nothing if the directory exists.

        Raises:
            StorageError: A file has the path of the directory or of a parent.
        """
        ...

    def sync_directory(self, path: str) -> None:
        """Returns when the names in the directory survive a power cut. On systems that cannot sync one (Windows), it does nothing.

        Raises:
            CheckpointNotFoundError: There is no such directory.
            StorageError: The names may be lost. Unlike a file, a directory may be synced again.
        """
        ...

    def list(self, directory: str) -> list[str]:
        """The names of the files and directories in a directory, sorted. Empty if the directory does not exist."""
        ...

    def is_file(self, path: str) -> bool:
        """Whether the path is that of a regular file.

        Raises:
            StorageError: The operating system cannot tell. The methods below raise it too.
        """
        ...

    def is_directory(self, path: str) -> bool:
        """Whether the path is that of a directory."""
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


class ConditionalStorage(Storage, Protocol):
    """A storage that writes a file only if nobody else has written it meanwhile, such as an object store.

    It is optional. A storage that has ``conditional_writes = True`` needs no `rename`, because a save to it calls `replace` instead: the index of a
    checkpoint and the state file are written by it, and data files have names that no other save has. Each write is durable when it returns.
    A file that is open cannot be read any more when it is removed or replaced, which raises `CheckpointNotFoundError`. Directories exist only as parts of paths.

    Example:
        >>> from milepost.storage import ConditionalStorage, ObjectStorage
        >>> storage: ConditionalStorage = ObjectStorage("memory://example")
        >>> storage.replace("run/note", b"first", present=None)
        >>> storage.replace("run/note", b"second", present=b"first")
        >>> storage.open("run/note").read(0, 6)
        b'second'
    """

    conditional_writes: bool
    """Whether a save to this storage goes without `rename`."""

    def replace(self, path: str, data: bytes, present: bytes | None) -> None:
        """Writes a whole file in one step, if it is as expected. It is durable when this returns.

        A request that was not answered may have been carried out. So a storage over a network looks what is there before it reports a conflict.

        Args:
            path: The file.
            data: All of its bytes.
            present: The bytes that it must have now; None if there must be no file.

        Raises:
            StorageError: The file has other bytes, or is not there, with ``errno`` EEXIST. It is unchanged. Or the storage refuses, or does not
                answer; only the latter leaves it open whether the file was written.
        """
        ...


class LinkingStorage(Storage, Protocol):
    """A storage that can give the bytes of a file a second name, so that incremental saves need not write them again.

    It is optional: a save to a storage without `link` writes everything.

    Example:
        >>> from milepost.storage import LinkingStorage, MemoryStorage
        >>> storage: LinkingStorage = MemoryStorage()
        >>> with storage.create("first") as file:
        ...     file.write(0, [b"text"])
        >>> storage.link("first", "second")
        >>> storage.remove("first")
        >>> storage.open("second").read(0, 4)
        b'text'
    """

    def link(self, source: str, target: str) -> None:
        """Makes a file with the bytes of another one, without transferring them: a hard link, or a copy within an object store.

        After that, either name can be renamed, replaced or removed, and the other keeps its bytes. The bytes of the target are
        durable, even if those of the source were not, and its name is durable after `sync_directory`.

        Args:
            source: A file that is not written any more.
            target: A path in the same directory that does not exist.

        Raises:
            CheckpointNotFoundError: There is no such file.
            StorageError: The target exists already, with ``errno`` EEXIST. Or the source cannot be linked, for example
                because it is a directory. If the system has no links, the error number is ENOTSUP or EPERM; no target
                is made, and an incremental save writes everything.
        """
        ...

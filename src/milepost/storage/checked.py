"""Checks the exceptions and results of a storage that a program gave.

milepost relies on what `milepost.storage.Storage` promises. A storage of a program's own may break a promise: it may raise an
exception that is not milepost's, or return nothing. `CheckedStorage` then raises a `StorageError` that names the class and the method
of the storage, the file, and what to change.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from milepost.errors import MilepostError, StorageError
from milepost.storage.default import DEFAULT_STORAGE, located
from milepost.storage.interface import Buffer, ConditionalStorage, LinkingStorage, ReadableFile, Storage, WritableFile
from milepost.storage.local_files import LocalFile

_READS: Final = ("path", "size", "read", "read_into", "close")
_WRITES: Final = ("path", "write", "sync", "close")
_MISSING: Final = (FileNotFoundError, KeyError)
_PASSED_ON: Final = (MilepostError, MemoryError)


def checked(storage: Storage | None) -> Storage:
    """The storage to use for a call.

    Args:
        storage: The storage that the program gave, or None for this machine.

    Returns:
        A storage whose errors are milepost's. It is ``storage`` itself if its class is one of milepost's.

    Example:
        >>> checked(None) is DEFAULT_STORAGE
        True
    """
    if storage is None:
        return DEFAULT_STORAGE
    return storage if _is_own(storage) else CheckedStorage(storage)


def unchecked(storage: Storage) -> Storage:
    """The storage that the program gave. Its identity distinguishes storages, and its class is named in errors.

    Args:
        storage: What `checked` returned.
    """
    return storage._given if isinstance(storage, CheckedStorage) else storage


def linking(storage: Storage) -> LinkingStorage | None:
    """The same storage, if it can give a file a second name.

    Args:
        storage: What `checked` returned.

    Example:
        >>> linking(DEFAULT_STORAGE) is DEFAULT_STORAGE
        True
    """
    return storage if callable(getattr(unchecked(storage), "link", None)) else None  # type: ignore[return-value]  # it has `link`


def conditional(storage: Storage, path: str) -> ConditionalStorage | None:
    """The storage of a path, if a save to it goes without renames.

    Args:
        storage: What `checked` returned.
        path: The path.

    Example:
        >>> conditional(DEFAULT_STORAGE, "run/ckpt") is None
        True
    """
    there = located(storage, path)
    return there if getattr(unchecked(there), "conditional_writes", False) else None  # type: ignore[return-value]  # it has `replace`


def link(storage: Storage, source: str, target: str) -> None:
    """Links a file, as `LinkingStorage.link` does.

    Raises:
        CheckpointNotFoundError: There is no such file.
        StorageError: It cannot be linked, or the storage has no method for that.
    """
    able = linking(storage)
    if able is None:
        raise StorageError(
            f"{type(unchecked(storage)).__name__} has no method link()",
            errno=errno.ENOTSUP,
            file=source,
            remedy="give it one, as milepost.storage.LinkingStorage describes",
        )
    able.link(source, target)


class CheckedStorage:
    """A storage of a program's own, whose exceptions become `StorageError`.

    Args:
        storage: The storage.
    """

    def __init__(self, storage: Storage) -> None:
        self._given = storage

    def __repr__(self) -> str:
        return repr(self._given)

    def open(self, path: str) -> ReadableFile:
        file = self._call("open", path)
        _check_has(file, _READS, _name(self._given, "open"), path)
        return file if _is_own(file) or isinstance(file, LocalFile) else _CheckedFile(file, path)

    def create(self, path: str) -> WritableFile:
        file = self._call("create", path)
        _check_has(file, _WRITES, _name(self._given, "create"), path)
        return file if _is_own(file) else _CheckedWriter(file, path)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source, target)

    def link(self, source: str, target: str) -> None:
        self._call("link", source, target)

    def replace(self, path: str, data: bytes, present: bytes | None) -> None:
        self._call("replace", path, data, present)

    def remove(self, path: str) -> None:
        self._call("remove", path)

    def make_directory(self, path: str) -> None:
        self._call("make_directory", path)

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path)

    def list(self, directory: str) -> list[str]:
        names = self._call("list", directory)
        if names is None:
            raise _wrong_result(_name(self._given, "list"), "None", directory, "a sorted list of names")
        listed: list[str] = names
        return listed

    def is_file(self, path: str) -> bool:
        return bool(self._call("is_file", path))

    def is_directory(self, path: str) -> bool:
        return bool(self._call("is_directory", path))

    def modified(self, path: str) -> float:
        seconds = self._call("modified", path)
        if seconds is None:
            raise _wrong_result(_name(self._given, "modified"), "None", path, "a time in seconds since the epoch")
        return float(seconds)

    def in_use(self, path: str) -> bool:
        return bool(self._call("in_use", path))

    def _call(self, method: str, path: str, *others: Any) -> Any:
        return _call(self._given, method, path, path, *others)


class _CheckedFile:
    """A file that a storage of a program's own opened."""

    def __init__(self, file: ReadableFile, path: str) -> None:
        self._given = file
        self._path = path

    @property
    def path(self) -> str:
        return self._given.path

    @property
    def size(self) -> int:
        return self._given.size

    def read(self, offset: int, length: int) -> bytes:
        data = _call(self._given, "read", self._path, offset, length)
        if data is None:
            raise _wrong_result(_name(self._given, "read"), "None", self._path, f"{length} bytes")
        content: bytes = data
        return content

    def read_into(self, offset: int, buffer: Buffer) -> None:
        _call(self._given, "read_into", self._path, offset, buffer)

    def close(self) -> None:
        _call(self._given, "close", self._path)


class _CheckedWriter:
    """A file that a storage of a program's own created."""

    def __init__(self, file: WritableFile, path: str) -> None:
        self._given = file
        self._path = path

    @property
    def path(self) -> str:
        return self._given.path

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        _call(self._given, "write", self._path, offset, buffers)

    def sync(self) -> None:
        _call(self._given, "sync", self._path)

    def close(self) -> None:
        _call(self._given, "close", self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _is_own(obj: object) -> bool:
    return type(obj).__module__.partition(".")[0] == "milepost"


def _name(obj: object, method: str) -> str:
    return f"{type(obj).__name__}.{method}()"


def _call(obj: object, method: str, path: str, *arguments: Any) -> Any:
    try:
        call: Callable[..., Any] = getattr(obj, method)
        return call(*arguments)
    except _PASSED_ON:
        raise
    except Exception as error:
        name = _name(obj, method)
        if isinstance(error, _MISSING):
            remedy = f"let {name} raise milepost.CheckpointNotFoundError if there is no such file"
        else:
            remedy = f"correct {name}, or let it raise milepost.StorageError for failures that can happen"
        raise StorageError(
            f"{name} of the storage failed",
            errno=getattr(error, "errno", None),
            file=path,
            expected="one of the errors that milepost.storage.Storage describes",
            found=f"{type(error).__name__}: {error}",
            remedy=f"{remedy}; the tests of milepost.testing.storage_suite find such faults",
        ) from error


def _check_has(file: object, names: Sequence[str], method: str, path: str) -> None:
    if file is None:
        raise _wrong_result(method, "None", path, f"a file with {', '.join(names)}")
    if lacking := [name for name in names if not hasattr(file, name)]:
        found = f"an object of type {type(file).__name__} without {', '.join(lacking)}"
        raise _wrong_result(method, found, path, f"a file with {', '.join(names)}")


def _wrong_result(method: str, found: str, path: str, expected: str) -> StorageError:
    return StorageError(
        f"{method} of the storage returned a wrong result",
        file=path,
        expected=expected,
        found=found,
        remedy=f"correct {method}; the tests of milepost.testing.storage_suite find such faults",
    )

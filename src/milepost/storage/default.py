"""The default storage: paths of this machine, and URLs, each of which means the storage of its bucket."""

from __future__ import annotations

import errno
import os
from typing import Final

from milepost.errors import StorageError
from milepost.forks import ForkableLock
from milepost.storage.interface import ReadableFile, Storage, WritableFile
from milepost.storage.local import LocalStorage
from milepost.storage.objects.storage import ObjectStorage
from milepost.storage.paths import SCHEMES, check_local, is_url, split_url, without_file_scheme


class AnyPathStorage(LocalStorage):
    """Files of this machine and, under URLs, objects of stores. It makes one storage for each bucket, when a path in it is first used.

    Example:
        >>> storage = AnyPathStorage()
        >>> storage.create("memory://example/run/note").close()
        >>> storage.list("memory://example/run")
        ['note']
    """

    def __init__(self) -> None:
        super().__init__()
        self._of_buckets: dict[tuple[str, str], Storage] = {}
        self._lock = ForkableLock()

    def of(self, path: str) -> Storage:
        """The storage that has a path.

        Raises:
            UnsupportedError: The path is a URL of a scheme that milepost does not know, or begins with ``~``.
        """
        if not is_url(path) or without_file_scheme(path) != path:
            return self
        scheme, bucket, _ = split_url(path)
        if scheme not in SCHEMES:
            check_local(path)
        with self._lock:
            storage = self._of_buckets.get((scheme, bucket))
            if storage is None:
                storage = self._of_buckets[scheme, bucket] = ObjectStorage(f"{scheme}://{bucket}")
            return storage

    def open(self, path: str) -> ReadableFile:  # type: ignore[override]  # only a `LocalStorage` itself promises more
        there = self.of(path)
        return super().open(path) if there is self else there.open(path)

    def create(self, path: str) -> WritableFile:  # type: ignore[override]  # as above
        there = self.of(path)
        return super().create(path) if there is self else there.create(path)

    def rename(self, source: str, target: str) -> None:
        there = self.of(target)
        if there is self:
            super().rename(source, target)
        else:
            there.rename(source, target)

    def link(self, source: str, target: str) -> None:
        if self.of(source) is not self:
            raise StorageError(f"cannot link to {target}: a store cannot", errno=errno.ENOTSUP, file=source)
        super().link(source, target)

    def remove(self, path: str) -> None:
        there = self.of(path)
        if there is self:
            super().remove(path)
        else:
            there.remove(path)

    def make_directory(self, path: str) -> None:
        there = self.of(path)
        if there is self:
            super().make_directory(path)
        else:
            there.make_directory(path)

    def sync_directory(self, path: str) -> None:
        there = self.of(path)
        if there is self:
            super().sync_directory(path)
        else:
            there.sync_directory(path)

    def list(self, directory: str) -> list[str]:
        there = self.of(directory)
        return super().list(directory) if there is self else there.list(directory)

    def is_file(self, path: str) -> bool:
        there = self.of(path)
        return super().is_file(path) if there is self else there.is_file(path)

    def is_directory(self, path: str) -> bool:
        there = self.of(path)
        return super().is_directory(path) if there is self else there.is_directory(path)

    def modified(self, path: str) -> float:
        there = self.of(path)
        return super().modified(path) if there is self else there.modified(path)

    def in_use(self, path: str) -> bool:
        there = self.of(path)
        return super().in_use(path) if there is self else there.in_use(path)


DEFAULT_STORAGE: Final = AnyPathStorage()
"""There is only one, because it remembers which directories are durable, and keeps the connections to stores."""


def located(storage: Storage, path: str) -> Storage:
    """The storage that has a path: that of its bucket for a URL, if a program gave no storage; otherwise the same one.

    Raises:
        UnsupportedError: As for `AnyPathStorage.of`.

    Example:
        >>> located(DEFAULT_STORAGE, "run/ckpt") is DEFAULT_STORAGE
        True
    """
    return storage.of(path) if isinstance(storage, AnyPathStorage) else storage


def anchored(storage: Storage, path: str) -> Storage:
    """A storage for which a path has the same meaning when the current directory changes.

    Args:
        storage: Any storage. Only a `LocalStorage` depends on the current directory.
        path: The path to be used with the storage.

    Returns:
        A copy of a `LocalStorage` if the path is relative; the storage of its bucket if it is a URL; otherwise the storage itself.

    Raises:
        UnsupportedError: The path is a URL or begins with ``~``, and the storage is one of this machine's.
    """
    storage = located(storage, path)
    # an object of a subclass of a program may count or change calls, so it is not copied
    if type(storage) not in (LocalStorage, AnyPathStorage):
        return storage
    assert isinstance(storage, LocalStorage)
    path = without_file_scheme(path)
    if os.path.isabs(path):
        return storage
    check_local(path)
    return storage.fixed()

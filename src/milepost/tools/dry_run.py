"""Files of this machine or of a store, in which changes are only noted: what would be written is in memory, and what would be removed looks removed."""

from __future__ import annotations

import os
from typing import Any

from milepost.errors import CheckpointNotFoundError
from milepost.storage import LocalStorage, MemoryStorage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.storage.paths import is_url


class DryRunStorage(LocalStorage):
    """A storage on which an operation can be tried. No file of this machine changes.

    Attributes:
        removed: The paths of files that would be removed.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "file")
        >>> open(path, "w").close()
        >>> storage = DryRunStorage()
        >>> storage.remove(path)
        >>> storage.is_file(path), os.path.isfile(path), storage.removed == {path}
        (False, True, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self._written = MemoryStorage()
        self.removed: set[str] = set()

    def open(self, path: str) -> Any:
        if self._written.is_file(path):
            return self._written.open(path)
        if path in self.removed:
            raise CheckpointNotFoundError("cannot open for reading: there is no such file or directory", file=path)
        return DEFAULT_STORAGE.open(path)

    def create(self, path: str) -> Any:
        return self._written.create(path)

    def rename(self, source: str, target: str) -> None:
        if not self._written.is_file(source):
            self._copy(source, source)
            self.removed.add(source)
        self._written.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._copy(source, target)

    def remove(self, path: str) -> None:
        self._written.remove(path)
        if DEFAULT_STORAGE.is_file(path):
            self.removed.add(path)

    def _copy(self, source: str, target: str) -> None:
        file = self.open(source)
        with self._written.create(target) as copy:
            copy.write(0, [file.read(0, file.size)])
        file.close()

    def is_directory(self, path: str) -> bool:
        return DEFAULT_STORAGE.is_directory(path)

    def in_use(self, path: str) -> bool:
        return not self._written.is_file(path) and DEFAULT_STORAGE.in_use(path)

    def absolute(self, path: str) -> str:
        return path if is_url(path) else super().absolute(path)

    def make_directory(self, path: str) -> None:
        self._written.make_directory(path)

    def sync_directory(self, path: str) -> None:
        """Does nothing."""

    def list(self, directory: str) -> list[str]:
        present = [
            name for name in DEFAULT_STORAGE.list(directory) if os.path.join(directory, name) not in self.removed
        ]
        return list(dict.fromkeys([*present, *self._written.list(directory)]))

    def is_file(self, path: str) -> bool:
        return self._written.is_file(path) or (path not in self.removed and DEFAULT_STORAGE.is_file(path))

    def modified(self, path: str) -> float:
        return self._written.modified(path) if self._written.is_file(path) else DEFAULT_STORAGE.modified(path)

"""A bucket in the memory of this process, for tests and for temporary checkpoints."""

from __future__ import annotations

import errno
import os
import time
from typing import NamedTuple, Self

from milepost.forks import ForkableLock
from milepost.storage.objects.bucket import Head, Names, Upload


class _Object(NamedTuple):
    data: bytes
    modified: float
    version: str


class MemoryBucket:
    """A bucket in memory. Two objects of this class share nothing.

    Example:
        >>> bucket = MemoryBucket()
        >>> bucket.create("run/checkpoint", b"text")
        >>> bucket.list("")
        Names(objects=[], folders=['run'])
    """

    def __init__(self) -> None:
        self.objects: dict[str, _Object] = {}
        self._writes = 0
        self._lock = ForkableLock()

    def copy(self) -> Self:
        """Another bucket with the same objects."""
        copied = type(self)()
        copied.objects, copied._writes = dict(self.objects), self._writes
        return copied

    def head(self, key: str) -> Head:
        stored = self._existing(key)
        return Head(len(stored.data), stored.modified, stored.version)

    def read(self, key: str, most: int) -> tuple[Head, bytes | None]:
        stored = self._existing(key)
        head = Head(len(stored.data), stored.modified, stored.version)
        return head, stored.data if head.size <= most else None

    def get(self, key: str, start: int, stop: int, version: str) -> bytes:
        stored = self._existing(key)
        if stored.version != version:
            raise _error(errno.EEXIST, key)
        return stored.data[start:stop]

    def put(self, key: str, data: bytes) -> None:
        self._write(key, data)

    def create(self, key: str, data: bytes) -> None:
        self._write(key, data, is_new=True)

    def exchange(self, key: str, data: bytes, version: str) -> None:
        self._write(key, data, version)

    def upload(self, key: str) -> Upload:
        return _MemoryUpload(self, key)

    def delete(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def list(self, folder: str) -> Names:
        with self._lock:
            below = [key[len(folder) :] for key in self.objects if key.startswith(folder)]
        objects = sorted(name for name in below if "/" not in name)
        return Names(objects, sorted({name.partition("/")[0] for name in below if "/" in name}))

    def _write(self, key: str, data: bytes, version: str | None = None, *, is_new: bool = False) -> None:
        """Writes an object, if it has a version, or is new."""
        with self._lock:
            stored = self.objects.get(key)
            is_other = version is not None and (stored is None or stored.version != version)
            if is_other or (is_new and stored is not None):
                raise _error(errno.EEXIST, key)
            self._writes += 1
            self.objects[key] = _Object(bytes(data), time.time(), str(self._writes))

    def _existing(self, key: str) -> _Object:
        with self._lock:
            if key not in self.objects:
                raise _error(errno.ENOENT, key)
            return self.objects[key]


class _MemoryUpload:
    def __init__(self, bucket: MemoryBucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._parts: list[bytes] = []

    def send(self, part: bytes) -> None:
        self._parts.append(part)

    def complete(self) -> None:
        self._bucket.put(self._key, b"".join(self._parts))

    def abort(self) -> None:
        self._parts.clear()


def _error(code: int, key: str) -> OSError:
    return OSError(code, os.strerror(code), key)

"""Files of this machine, through the ``os`` module."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.storage.interface import Buffer

_MOST_BUFFERS = 1024
"""POSIX lets a system refuse a vectored write of more buffers (``IOV_MAX``)."""

_REMEDIES = {
    errno.ENOSPC: "free space on the device, or save elsewhere; the previous checkpoint is untouched",
    errno.EDQUOT: "raise the quota, or save elsewhere; the previous checkpoint is untouched",
    errno.EROFS: "save to a directory that can be written",
    errno.EACCES: "change the permissions of the file or of its directory",
    errno.EPERM: "change the permissions of the file or of its directory",
}


@contextmanager
def _translated(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise CheckpointNotFoundError(f"cannot {doing}: there is no such file or directory", file=path) from None
    except OSError as error:
        code = error.errno or 0
        raise StorageError(
            f"cannot {doing}: {os.strerror(code) if code else error}", errno=code, file=path, remedy=_REMEDIES.get(code)
        ) from error


class LocalFile:
    """A file of this machine open for reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _translated("open for reading", path):
            # Without O_NONBLOCK, a named pipe given by mistake would wait for a writer for ever.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            status = os.fstat(self._descriptor)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise CorruptCheckpointError(
                "cannot be read as part of a checkpoint", file=path, expected="a file", found=kind
            )

    def read(self, offset: int, length: int) -> bytes:
        with _translated("read", self.path):
            data = os.pread(self._descriptor, length, offset)
            while len(data) < length:
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
                if not more:
                    raise self._too_short(offset + length)
                data += more
        return data

    def read_into(self, offset: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        with _translated("read", self.path):
            while view:
                count = os.preadv(self._descriptor, [view], offset)
                if not count:
                    raise self._too_short(offset + len(view))
                offset += count
                view = view[count:]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _too_short(self, needed: int) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            "the file is truncated", file=self.path, expected=f"at least {needed} bytes", found=f"{self.size} bytes"
        )

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class LocalWriter:
    """A new file of this machine, locked while it is open so that others can tell it is not a leftover."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _translated("create", path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Some network file systems have no locks; there the age of a file has to tell (see `in_use`).
            pass

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        views = [view for buffer in buffers if (view := memoryview(buffer).cast("B"))]
        with _translated("write", self.path):
            while views:
                count = os.pwritev(self._descriptor, views[:_MOST_BUFFERS], offset)
                offset += count
                done = 0
                while done < len(views) and count >= len(views[done]):
                    count -= len(views[done])
                    done += 1
                views = views[done:]
                if count:
                    views[0] = views[0][count:]

    def sync(self) -> None:
        with _translated("make durable", self.path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with _translated("close", self.path):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class LocalStorage:
    """Files of this machine."""

    def open(self, path: str) -> LocalFile:
        return LocalFile(path)

    def create(self, path: str) -> LocalWriter:
        return LocalWriter(path)

    def rename(self, source: str, target: str) -> None:
        with _translated(f"rename to {target}", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with _translated("remove", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def make_directory(self, path: str) -> None:
        path = path or "."
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self.make_directory(parent)
        with _translated("make a directory", path):
            try:
                os.mkdir(path)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        with _translated("make the names durable", path):
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def list(self, directory: str) -> list[str]:
        with _translated("list", directory):
            try:
                return sorted(os.listdir(directory or "."))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified(self, path: str) -> float:
        with _translated("look at", path):
            return os.stat(path).st_mtime

    def in_use(self, path: str) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

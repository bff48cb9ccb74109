"""Files of this machine, through the ``os`` module."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, StorageError
from milepost.storage.buffers import byte_view, check_range
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

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


@contextmanager
def _translated(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except MilepostError:
        raise
    except FileNotFoundError:
        raise CheckpointNotFoundError(f"cannot {doing}: there is no such file or directory", file=path) from None
    except OSError as error:
        code = error.errno or 0
        raise StorageError(
            f"cannot {doing}: {os.strerror(code) if code else error}", errno=code, file=path, remedy=_REMEDIES.get(code)
        ) from error


def _open(descriptor: int) -> int:
    """The descriptor, unless its file was closed, which the ``os`` module would call a `ValueError`."""
    if descriptor < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return descriptor


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
        self._check_range(offset, length)
        with _translated("read", self.path):
            data = os.pread(_open(self._descriptor), length, offset)
            if len(data) == length:
                return data
        # The system reads at most 2 GiB at once.
        whole = bytearray(length)
        whole[: len(data)] = data
        self.read_into(offset + len(data), memoryview(whole)[len(data) :])
        return bytes(whole)

    def read_into(self, offset: int, buffer: Buffer) -> None:
        view = byte_view(buffer)
        self._check_range(offset, len(view))
        with _translated("read", self.path):
            while view:
                count = os.preadv(_open(self._descriptor), [view], offset)
                if not count:
                    check_range(self.path, offset, len(view), os.fstat(self._descriptor).st_size)
                    raise OSError(errno.EIO, "nothing was read")
                offset += count
                view = view[count:]

    def fileno(self) -> int:
        """The descriptor, for as long as the file is open."""
        with _translated("read", self.path):
            return _open(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check_range(self, offset: int, length: int) -> None:
        size = self.size
        if offset + length > size:
            with _translated("read", self.path):
                size = os.fstat(_open(self._descriptor)).st_size  # It may have grown.
        check_range(self.path, offset, length, size)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class LocalWriter:
    """A new file of this machine, locked while it is open so that others can tell it is not a leftover."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _translated("create", path):
            self._descriptor = _create_locked(path)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        views = [view for buffer in buffers if (view := byte_view(buffer))]
        with _translated("write", self.path):
            first = 0
            while first < len(views):
                count = os.pwritev(_open(self._descriptor), views[first : first + _MOST_BUFFERS], offset)
                if not count:
                    raise OSError(errno.EIO, "nothing was written")
                offset += count
                while first < len(views) and count >= len(views[first]):
                    count -= len(views[first])
                    first += 1
                if count:
                    views[first] = views[first][count:]

    def sync(self) -> None:
        with _translated("make durable", self.path):
            _sync(_open(self._descriptor))

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with _translated("close", self.path):
                try:
                    # Closing does not unlock a file that a forked child still has open.
                    _lock(descriptor, fcntl.LOCK_UN)
                finally:
                    os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)


def _create_locked(path: str) -> int:
    """Creates a file that is locked before anyone can see it.

    Were it visible first, another process could take it for a leftover in the moment before it is locked. Where the
    system cannot make files without a name, that moment remains.
    """
    if hasattr(os, "O_TMPFILE"):
        try:
            descriptor = os.open(os.path.dirname(path) or ".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
        except OSError:
            pass  # The file system has none. Any other reason comes again below.
        else:
            try:
                _lock(descriptor, fcntl.LOCK_EX)
                # With a directory's descriptor, even one that is not looked at, `os.link` follows the symbolic link.
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
                return descriptor
            except FileExistsError:
                os.close(descriptor)
                raise
            except OSError:
                os.close(descriptor)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    _lock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _mode(path: str) -> int:
    """The kind of what is at a path; 0 if there is nothing, but not if the system could not look."""
    with _translated("look at", path):
        try:
            return os.stat(path).st_mode
        except ValueError:
            return 0
        except OSError as error:
            if error.errno in _NOTHING_THERE:
                return 0
            raise


def _lock(descriptor: int, operation: int) -> None:
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        pass  # Some network file systems have no locks; there `in_use` cannot tell, and says that every file is.


def _sync(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):
        # On macOS, fsync leaves the data in the memory of the drive.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


class LocalStorage:
    """Files of this machine. Paths are those of the ``os`` module; relative ones go by the current directory."""

    def __init__(self) -> None:
        self._durable: set[tuple[int, int]] = set()
        """Device and inode of directories that survive a power cut, with all above them."""

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
        with _translated("make a directory", path):
            self._make_directory(os.path.abspath(path))

    def _make_directory(self, path: str) -> os.stat_result:
        parent = os.path.dirname(path)
        try:
            status = os.stat(path)
            made = False
        except FileNotFoundError:
            self._make_directory(parent)
            try:
                os.mkdir(path)
                made = True
            except FileExistsError:
                made = False
            status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        identity = status.st_dev, status.st_ino
        if made:
            self.sync_directory(parent)
        elif identity not in self._durable and parent != path:
            # Whoever made it, the user perhaps a moment ago, need not have synced the names above.
            above = self._make_directory(parent)
            if above.st_dev == status.st_dev:
                try:
                    self.sync_directory(parent)
                except StorageError:
                    pass  # It may be another user's. The directory was not ours to make durable.
        self._durable.add(identity)
        return status

    def sync_directory(self, path: str) -> None:
        with _translated("make the names durable", path):
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _sync(descriptor)
            finally:
                os.close(descriptor)

    def list(self, directory: str) -> list[str]:
        with _translated("list", directory):
            try:
                return sorted(os.listdir(directory or "."))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(_mode(path))

    def is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(_mode(path or "."))

    def modified(self, path: str) -> float:
        with _translated("look at", path):
            return os.stat(path).st_mtime

    def in_use(self, path: str) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        try:
            # Shared, so that of two who ask at once neither takes the other for a writer.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

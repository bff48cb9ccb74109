"""`ObjectStorage`: the objects of a bucket as files."""

from __future__ import annotations

import errno
import os
import posixpath
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, Self, TypeVar

from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    StorageError,
    UnsupportedError,
)
from milepost.forks import ForkableLock
from milepost.storage.objects.bucket import Bucket, Head
from milepost.storage.objects.buckets import bucket_of
from milepost.storage.objects.files import ObjectFile, ObjectWriter
from milepost.storage.objects.probe import clock_difference
from milepost.storage.objects.requests import NO_ANSWER, SMALL, answered, write_if
from milepost.storage.paths import ImpossiblePathError, check_possible, is_url, split_url, with_slashes

T = TypeVar("T")

_WRITES: Final = ("create", "write")
_TOUCHES: Final = 4
"""How often the notes of a save are written anew within a lease, if the save makes progress."""


class ObjectStorage:
    """The objects of a bucket as files. A save needs no rename there.

    A program rarely makes one: it passes URLs as paths. It makes one for options that the environment does not give.

    Folders exist only as parts of the keys of objects, so one without objects does not exist. An object that is open cannot be read any more when
    it is removed or replaced.

    Args:
        url: The bucket, such as ``"s3://bucket"``, or a folder in it. Paths are URLs in this bucket, or relative to this one.
        options: What the library obstore takes for this store, such as ``{"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"}``. With
            ``"profile"``, the credentials are those of this profile, which boto3 reads. By default everything comes from the environment.
        lease: Seconds after which a process that has made no progress with its save counts as dead. Others then remove what it has left, and its
            save fails if it continues.
        patience: Seconds to wait for a store that does not answer.
        probe: Whether the first write tries whether the store keeps the conditions of requests. With a store that ignores them, two processes
            that save under one path may both be told that they have saved.

    Attributes:
        bucket: What answers the requests.

    Raises:
        UnsupportedError: There is no such scheme, or a library for it is not installed.

    Example:
        >>> import milepost
        >>> storage = ObjectStorage("memory://example")
        >>> options = milepost.CheckpointOptions(storage=storage)
        >>> path = milepost.Checkpoint(step=milepost.Variable(3)).save("memory://example/run/ckpt", options)
        >>> int(milepost.load_variable(path, "step", options))
        3
    """

    conditional_writes = True

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        lease: float = 60.0,
        patience: float = 60.0,
        probe: bool = True,
    ) -> None:
        self._scheme, self._name, self._folder = split_url(url)
        self.bucket: Bucket = bucket_of(url, self._scheme, self._name, options)
        self._lease = lease
        self._patience = patience
        self._probes = probe
        self._clock_difference: float | None = None
        self._open: dict[str, ObjectWriter] = {}
        self._lock = ForkableLock()

    def __repr__(self) -> str:
        return f"ObjectStorage({posixpath.join(f'{self._scheme}://{self._name}', self._folder)!r})"

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a storage of a store cannot be pickled, because it may hold credentials",
            expected="a path, such as s3://bucket/run",
            found=repr(self),
            remedy="pass the path to the other process, and make the storage there",
        )

    def open(self, path: str) -> ObjectFile:
        doing = "open for reading"
        key = self._existing_key(doing, path)
        try:
            head, content = self.ask(doing, path, lambda: self.bucket.read(key, SMALL))
        except CheckpointNotFoundError:
            if not self.is_directory(path):
                raise
            raise CorruptCheckpointError(
                "cannot be read as part of a checkpoint", file=path, expected="a file", found="a directory"
            ) from None
        return ObjectFile(self, path, key, head, content)

    def create(self, path: str) -> ObjectWriter:
        key = self._new_key("create", path)
        self._try_conditions(path, key)
        writer = ObjectWriter(self, path, key, time.monotonic())
        with self._lock:
            is_taken = key in self._open
            if not is_taken:
                self._open[key] = writer  # first, so that Ctrl-C leaves nothing that this process does not know
        try:
            if is_taken or not self._write_if("create", path, key, b"", None):
                raise StorageError(f"cannot create: {os.strerror(errno.EEXIST)}", errno=errno.EEXIST, file=path)
        except BaseException:
            if not is_taken:
                self.closed(key, writer)
            raise
        return writer

    def replace(self, path: str, data: bytes, present: bytes | None) -> None:
        key = self._new_key("write", path)
        self._try_conditions(path, key)
        if not self._write_if("write", path, key, data, present):
            raise StorageError(
                "cannot write: another process has written or removed this object meanwhile",
                errno=errno.EEXIST,
                file=path,
                expected="no object" if present is None else "the object as it was read",
                found="another one",
                remedy="let only one run save to this directory",
            )

    def rename(self, source: str, target: str) -> None:
        raise StorageError(f"cannot rename to {target}: a store cannot", errno=errno.ENOTSUP, file=source)

    def remove(self, path: str) -> None:
        key = self._key(path)
        if not key:
            return
        with self._lock:
            writer = self._open.get(key)
        if writer is not None:
            writer.discard()
        self.ask("remove", path, lambda: self.bucket.delete(key))

    def make_directory(self, path: str) -> None:
        self._new_key("make a directory", path)

    def sync_directory(self, path: str) -> None:
        pass

    def list(self, directory: str) -> list[str]:
        key = self._key(directory)
        if key is None:
            return []
        try:
            names = self.ask("list", directory, lambda: self.bucket.list(key and key + "/"))
        except CheckpointNotFoundError:
            return []  # there is no such bucket
        return sorted({*names.objects, *names.folders})

    def is_file(self, path: str) -> bool:
        try:
            self._head(path)
        except CheckpointNotFoundError:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        key = self._key(path)
        return key == "" or (key is not None and bool(self.list(path)))

    def modified(self, path: str) -> float:
        return self._head(path).modified

    def in_use(self, path: str) -> bool:
        key = self._key(path)
        with self._lock:
            if key in self._open:
                return True
        try:
            modified = self.modified(path)
        except CheckpointNotFoundError:
            return False
        return time.time() + (self._clock_difference or 0.0) - modified < self._lease

    def ask(self, doing: str, path: str, request: Callable[[], T], *, repeat: bool = True) -> T:
        """The answer of the bucket to a request.

        Args:
            doing: What is being done, for errors.
            path: The path, for errors.
            request: The request.
            repeat: Whether it may be made more than once.

        Raises:
            CheckpointNotFoundError: There is no such object.
            StorageError: The store refuses the request, or does not answer.
        """
        try:
            return answered(request, self._patience) if repeat else request()
        except MilepostError:
            raise
        except OSError as error:
            raise _explained(error, doing, path) from error

    def keep_notes(self) -> None:
        """Writes the notes of this process anew that are about to count as those of a dead one.

        Raises:
            StorageError: Another process has taken this one for dead.
        """
        now = time.monotonic()
        with self._lock:
            due = [each for each in self._open.values() if each.is_note and now - each.touched > self._lease / _TOUCHES]
        for writer in due:
            writer.touched = now
            if not self._write_if("write", writer.path, writer.key, b"", b""):
                raise StorageError(
                    "another process has taken this save for dead, because it made no progress; nothing was saved",
                    errno=errno.ESTALE,
                    file=writer.path,
                    expected=f"progress within {self._lease:g} seconds",
                    remedy="save again; for a slow network, pass ObjectStorage(url, lease=seconds)",
                )

    def closed(self, key: str, writer: object) -> None:
        """Notes that an object is not open any more.

        Args:
            key: Its key.
            writer: What had it open.
        """
        with self._lock:
            if self._open.get(key) is writer:
                del self._open[key]

    def _write_if(self, doing: str, path: str, key: str, data: bytes, present: bytes | None) -> bool:
        try:
            return write_if(self.bucket, key, data, present, self._patience)
        except MilepostError:
            raise
        except OSError as error:
            raise _explained(error, doing, path) from error

    def _try_conditions(self, path: str, key: str) -> None:
        """Tries once whether the store keeps the conditions of requests, and what its clock says."""
        if self._probes and self._clock_difference is None:
            folder = posixpath.dirname(key)
            try:
                self._clock_difference = clock_difference(self.bucket, folder and folder + "/", self._patience)
            except MilepostError:
                raise
            except OSError as error:
                raise _explained(error, "write", path) from error

    def _head(self, path: str) -> Head:
        key = self._existing_key("look at", path)
        return self.ask("look at", path, lambda: self.bucket.head(key))

    def _existing_key(self, doing: str, path: str) -> str:
        """The key that an object has which may be there."""
        key = self._key(path)
        if not key:
            raise CheckpointNotFoundError(f"cannot {doing}: no object can have this name", file=path)
        return key

    def _key(self, path: str) -> str | None:
        """The key of a path; None if no object can have the path."""
        try:
            check_possible(path)
        except ImpossiblePathError:
            return None
        path = with_slashes(path)
        if is_url(path):
            scheme, name, inside = split_url(path)
            if (scheme, name) != (self._scheme, self._name):
                raise UnsupportedError(
                    "this path is not in the bucket of its storage",
                    file=path,
                    expected=f"a path in {self._scheme}://{self._name}",
                    found=f"a path in {scheme}://{name}",
                    remedy="leave out storage=, or make an ObjectStorage of the other bucket",
                )
        else:
            inside = posixpath.join(self._folder, path.lstrip("/"))
        return posixpath.normpath("/" + inside).strip("/")

    def _new_key(self, doing: str, path: str) -> str:
        """The key of a new object."""
        key = self._key(path)
        if not key:
            raise StorageError(
                f"cannot {doing}: no object can have this name",
                errno=errno.EINVAL,
                file=path,
                remedy="save to another path",
            )
        return key


def _explained(error: OSError, doing: str, path: str) -> CheckpointNotFoundError | StorageError:
    """milepost's error for an error of a bucket."""
    if isinstance(error, FileNotFoundError) and doing in _WRITES:
        return StorageError(
            f"cannot {doing}: there is no such bucket",
            errno=errno.ENOENT,
            file=path,
            remedy="make the bucket, or save to another one; milepost makes none",
        )
    if isinstance(error, FileNotFoundError):
        return CheckpointNotFoundError(f"cannot {doing}: there is no such object or bucket", file=path)
    remedy = "look whether the store is reachable and allows this; the message of the store is above"
    if isinstance(error, NO_ANSWER):
        problem, code = f"cannot {doing}: the store does not answer", errno.ETIMEDOUT
        remedy = "look whether the store is reachable; for a slow one, pass ObjectStorage(url, patience=seconds)"
    elif isinstance(error, PermissionError):
        problem, code = f"cannot {doing}: the store does not allow it", errno.EACCES
        remedy = "let these credentials read, write, list and delete objects there, or use others"
    else:
        problem, code = f"cannot {doing}: {error.strerror or error}", error.errno or errno.EINVAL
    return StorageError(problem, errno=code, file=path, found=str(error.strerror or error)[:300], remedy=remedy)

"""A storage in memory that fails as a test requires, and that shows what a power cut can leave."""

from __future__ import annotations

import errno
import os
import posixpath
import threading
import time
from collections.abc import Collection, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, StorageError
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer
from milepost.storage.paths import ImpossiblePathError, check_possible, with_slashes
from milepost.testing.disk import ROOTS, Image, Link, Remove, Rename, Step, Sync, Write, aftermaths

Effect = Literal["nothing", "half", "all"]
"""How much of its work an operation does before it fails. Only a write can do half."""


@dataclass(slots=True)
class StorageCall:
    """One call of a storage or of one of its files.

    Attributes:
        name: The name of the method.
        path: Its path.
        target: The second path of a rename or a link.
        failed: The error number with which it failed; None if it did not fail.
        steps: Its steps on the disk.
    """

    name: str
    path: str
    target: str | None = None
    failed: int | None = None
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        target = f" -> {self.target}" if self.target else ""
        failed = f" failed: {errno.errorcode[self.failed]}" if self.failed else ""
        return f"{self.name} {self.path}{target}{failed}"


@dataclass(frozen=True, slots=True)
class _Fault:
    first: int
    code: int
    effect: Effect
    times: float
    only: Collection[str] | None

    def hits(self, number: int, operation: StorageCall) -> bool:
        return self.first <= number < self.first + self.times and (self.only is None or operation.name in self.only)


@dataclass(frozen=True, slots=True)
class _Attempt:
    steps: list[Step]
    effect: Effect | None
    """None if the operation does not fail."""


_HALF_DONE: Final = ("write", "sync", "sync_directory", "close")
"""Operations that may do some of their work even if they fail."""
_READING: Final = ("open", "modified")
_DOING: Final = {"open": "open for reading", "sync": "make durable", "sync_directory": "make the names durable"}


class FaultyStorage:
    """A storage in memory with the semantics of `LocalStorage`, which records every operation.

    Run code that must survive crashes once. Then check every moment at which the power could have failed, with every state in which
    the disk could be at that moment (`milepost.testing.disk`). Each such state is a `FaultyStorage` too, so recovery can be tested
    in the same way.

    A rename to another directory fails, as it does between devices, because it would need two syncs to be durable.

    Args:
        contents: The files at the beginning, which are durable, by their paths. None makes a directory.

    Example:
        >>> def save(storage):
        ...     with storage.create("new") as file:
        ...         file.write(0, [b"new"])
        ...         file.sync()
        ...     storage.rename("new", "state")
        ...     storage.sync_directory(".")
        >>> storage = FaultyStorage({"state": b"old"})
        >>> save(storage)
        >>> for point in storage.crash_points():
        ...     for after in storage.crash_states(point):
        ...         assert after.contents()["state"] in (b"old", b"new"), after
        >>> {after.contents()["state"] for after in storage.crash_states()}
        {b'new'}

        Operations can also fail:

        >>> storage = FaultyStorage({"state": b"old"})
        >>> storage.fail(1, errno.ENOSPC, effect="half")
        >>> save(storage)
        Traceback (most recent call last):
        milepost.errors.StorageError: cannot write: No space left on device
          file: new
        >>> print(*storage.operations, sep=", ")
        create new, write new failed: ENOSPC, close new
    """

    def __init__(self, contents: Mapping[str, bytes | None] | None = None) -> None:
        self.story = "the beginning"
        self.operations: list[StorageCall] = []
        self._before = Image()
        self._faults: list[_Fault] = []
        self._lock = threading.RLock()
        self._next_node = len(ROOTS)
        self._start(self._before)
        for path, content in (contents or {}).items():
            self.make_directory(path if content is None else posixpath.dirname(path))
            if content is not None:
                with self.create(path) as file:
                    file.write(0, [content])
        self.settle()

    # Methods for tests.

    def fail(
        self,
        first: int,
        code: int,
        *,
        effect: Effect = "nothing",
        times: int | None = 1,
        only: Collection[str] | None = None,
    ) -> None:
        """Makes operations fail.

        Args:
            first: The index in `operations` of the first operation that fails.
            code: The error number, such as ``errno.ENOSPC``.
            effect: How much of its work the operation does before it fails.
            times: How many operations fail, from the first on; None for all.
            only: The names of the operations that can fail. Others in between succeed.
        """
        self._faults.append(_Fault(first, code, effect, float("inf") if times is None else times, only))

    def settle(self) -> None:
        """Makes everything durable, and forgets the operations so far and the faults."""
        with self._lock:
            self._before = Image(
                {node: dict(names) for node, names in self._names.items()},
                {node: bytes(data) for node, data in self._files.items()},
            )
            self.operations.clear()
            self._faults.clear()

    def crash_points(self) -> Iterator[int]:
        """The numbers of operations after which a power cut makes a difference."""
        yield 0
        for number, operation in enumerate(self.operations, start=1):
            if operation.steps:
                yield number

    def crash_states(self, point: int | None = None, *, limit: int = 200, seed: int = 0) -> Iterator[FaultyStorage]:
        """The states in which the disk can be after a power cut, each different content once.

        Args:
            point: The number of operations before the power cut; by default all.
            limit: The most states. If there are more, the extremes and a random choice.
            seed: The seed of the random choice.

        Yields:
            Storages whose files, all of them durable, are those that are left. Their ``story`` says what was lost.
        """
        steps = [step for operation in self.operations[:point] for step in operation.steps]
        for aftermath in aftermaths(self._before, steps, limit=limit, seed=seed):
            state = FaultyStorage()
            state._start(aftermath.image)
            state.settle()
            state.story = aftermath.story
            yield state

    def contents(self) -> dict[str, bytes | None]:
        """What programs see now: by path, the bytes of each file, and None for each directory."""
        with self._lock:
            image = Image(self._names, {node: bytes(data) for node, data in self._files.items()})
            return {path: content for path, content in image.contents().items() if path not in ROOTS}

    def __repr__(self) -> str:
        return f"<FaultyStorage after {len(self.operations)} operations, {self.story}: {sorted(self.contents())}>"

    # Methods of a storage.

    def open(self, path: str) -> FaultyFile:
        with self._operation("open", path):
            node = self._find(path)
            if node in self._names:
                raise CorruptCheckpointError(
                    "cannot be read as part of a checkpoint", file=path, expected="a file", found="a directory"
                )
            return FaultyFile(self, path, node, len(self._files[node]))

    def create(self, path: str) -> FaultyWriter:
        with self._operation("create", path) as attempt:
            if _place(path) in ROOTS:
                raise OSError(errno.EEXIST, path)
            directory, name = self._parent(path)
            if name in self._names[directory]:
                raise OSError(errno.EEXIST, path)
            node = self._link(directory, name, attempt.steps, is_directory=False)
            if attempt.effect is None:
                self._writers[node] = 1
            return FaultyWriter(self, path, node)

    def rename(self, source: str, target: str) -> None:
        with self._operation("rename", source, target) as attempt:
            directory, name = self._parent(source)
            to_directory, to_name = self._parent(target)
            children = self._names[directory]
            if name not in children:
                raise OSError(errno.ENOENT, source)
            if directory != to_directory:
                raise OSError(errno.EXDEV, target)
            if children.get(to_name) in self._names:
                raise OSError(errno.EISDIR, target)
            if name != to_name:
                node = children[to_name] = children.pop(name)
                attempt.steps.append(Rename(directory, name, to_name, node))

    def link(self, source: str, target: str) -> None:
        with self._operation("link", source, target) as attempt:
            node = self._find(source)
            if node in self._names:
                raise OSError(errno.EPERM, source)
            directory, name = self._parent(target)
            if name in self._names[directory]:
                raise OSError(errno.EEXIST, target)
            if directory != self._parent(source)[0]:
                raise OSError(errno.EXDEV, target)
            self._names[directory][name] = node
            attempt.steps.extend((Sync(node), Link(directory, name, node)))

    def remove(self, path: str) -> None:
        with self._operation("remove", path) as attempt:
            node = self._look(path)
            if node in self._names:
                raise OSError(errno.EISDIR, path)
            if node is not None:
                directory, name = self._parent(path)
                del self._names[directory][name]
                attempt.steps.append(Remove(directory, name))

    def make_directory(self, path: str) -> None:
        try:
            check_possible(path)
        except ImpossiblePathError:
            with self._operation("make_directory", path):
                raise
        normalized_path = _place(path)
        if normalized_path in ROOTS:
            return
        above, name = posixpath.split(normalized_path)
        self.make_directory(above)
        with self._lock:
            directory = self._find_directory(above)
            if self._names[directory].get(name) not in self._names:
                with self._operation("make_directory", path) as attempt:
                    if name in self._names[directory]:
                        raise OSError(errno.ENOTDIR, path)
                    self._link(directory, name, attempt.steps, is_directory=True)
            # The name of an existing directory may not be durable yet.
            if not self._is_durable(directory, name):
                self.sync_directory(above)

    def sync_directory(self, path: str) -> None:
        with self._operation("sync_directory", path) as attempt:
            attempt.steps.append(Sync(self._find_directory(path), succeeded=attempt.effect is None))

    def list(self, directory: str) -> list[str]:
        with self._operation("list", directory):
            node = self._look(directory)
            return sorted(self._names.get(node, ())) if node is not None else []

    def is_file(self, path: str) -> bool:
        with self._operation("is_file", path):
            return self._look(path) in self._files

    def is_directory(self, path: str) -> bool:
        with self._operation("is_directory", path):
            return self._look(path) in self._names

    def modified(self, path: str) -> float:
        with self._operation("modified", path):
            return self._modified.get(self._find(path), 0.0)

    def in_use(self, path: str) -> bool:
        with self._operation("in_use", path):
            node = self._look(path)
            return node is not None and self._writers.get(node, 0) > 0

    # The implementation.

    def _start(self, image: Image) -> None:
        self._names = {node: dict(names) for node, names in image.names.items()}
        self._files = {node: bytearray(data) for node, data in image.files.items()}
        self._modified: dict[int, float] = dict.fromkeys(self._files, time.time())
        self._writers: dict[int, int] = {}
        self._next_node = max([*self._names, *self._files]) + 1

    @contextmanager
    def _operation(self, name: str, path: str, target: str | None = None) -> Iterator[_Attempt]:
        """Records an operation, and makes it fail if a fault applies to it."""
        operation = StorageCall(name, path, target)
        with self._lock:
            number = len(self.operations)
            self.operations.append(operation)
            fault = next((fault for fault in self._faults if fault.hits(number, operation)), None)
            effect = None if fault is None else fault.effect
            try:
                if fault is not None and name not in _HALF_DONE and effect != "all":
                    raise OSError(fault.code, path)
                yield _Attempt(operation.steps, effect)
                if fault is not None:
                    raise OSError(fault.code, path)
            except MilepostError:
                raise
            except OSError as error:
                operation.failed = error.errno
                code = error.errno or 0
                is_impossible = isinstance(error, ImpossiblePathError)
                reason = error.strerror if is_impossible else os.strerror(code)
                what = f"cannot {_DOING.get(name, name.replace('_', ' '))}: {reason}"
                is_nothing = name in _READING and (is_impossible or code == errno.ENOTDIR)
                if code == errno.ENOENT or is_nothing:
                    raise CheckpointNotFoundError(what, file=path) from None
                raise StorageError(what, errno=code, file=path) from None

    def _read(self, path: str, node: int, offset: int, length: int) -> bytes:
        with self._operation("read", path):
            content = self._files[node]
            check_range(path, offset, length, len(content))
            return bytes(content[offset : offset + length])

    def _write(self, path: str, node: int, offset: int, data: bytes, is_open: bool) -> None:
        with self._operation("write", path) as attempt:
            if not is_open:
                raise OSError(errno.EBADF, path)
            data = data[: {"nothing": 0, "half": len(data) // 2}.get(attempt.effect or "all", len(data))]
            if data:
                content = self._files[node]
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
                attempt.steps.append(Write(node, offset, data))
            self._modified[node] = time.time()

    def _sync(self, path: str, node: int, is_open: bool) -> None:
        with self._operation("sync", path) as attempt:
            if not is_open:
                raise OSError(errno.EBADF, path)
            attempt.steps.append(Sync(node, succeeded=attempt.effect is None))

    def _close(self, path: str, node: int) -> None:
        with self._operation("close", path):
            self._writers[node] -= 1

    def _link(self, directory: int, name: str, steps: MutableSequence[Step], *, is_directory: bool) -> int:
        node = self._next_node
        self._next_node += 1
        self._names[directory][name] = node
        if is_directory:
            self._names[node] = {}
        else:
            self._files[node] = bytearray()
            self._modified[node] = time.time()
        steps.append(Link(directory, name, node, is_directory))
        return node

    def _is_durable(self, directory: int, name: str) -> bool:
        steps = [step for operation in self.operations for step in operation.steps]
        links = [
            n
            for n, step in enumerate(steps)
            if isinstance(step, Link) and (step.directory, step.name) == (directory, name)
        ]
        return not links or Sync(directory) in steps[links[-1] :]

    def _find(self, path: str) -> int:
        normalized_path = _place(path)
        if normalized_path in ROOTS:
            return ROOTS[normalized_path]
        directory, name = self._parent(path)
        if name not in self._names[directory]:
            raise OSError(errno.ENOENT, path)
        return self._names[directory][name]

    def _find_directory(self, path: str) -> int:
        node = self._find(path)
        if node not in self._names:
            raise OSError(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[int, str]:
        """The directory that contains a path, and the name of the path there."""
        check_possible(path)
        above, name = posixpath.split(_place(path))
        return self._find_directory(above), name

    def _look(self, path: str) -> int | None:
        try:
            return self._find(path)
        except (FileNotFoundError, NotADirectoryError, ImpossiblePathError):
            return None


class FaultyFile:
    """A file of a `FaultyStorage` that is open for reading."""

    def __init__(self, storage: FaultyStorage, path: str, node: int, size: int) -> None:
        self.path = path
        self.size = size
        self._storage = storage
        self._node = node

    def read(self, offset: int, length: int) -> bytes:
        return self._storage._read(self.path, self._node, offset, length)

    def read_into(self, offset: int, buffer: Buffer) -> None:
        view = byte_view(buffer)
        view[:] = self._storage._read(self.path, self._node, offset, len(view))

    def close(self) -> None:
        pass


class FaultyWriter:
    """A new file of a `FaultyStorage` that is open for writing."""

    def __init__(self, storage: FaultyStorage, path: str, node: int) -> None:
        self.path = path
        self._storage = storage
        self._node = node
        self._is_open = True

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join(byte_view(buffer) for buffer in buffers)
        self._storage._write(self.path, self._node, offset, data, self._is_open)

    def sync(self) -> None:
        self._storage._sync(self.path, self._node, self._is_open)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._storage._close(self.path, self._node)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _place(path: str) -> str:
    return posixpath.normpath(with_slashes(path))

"""Tests for a `Storage`, for pytest.

Derive a class from `StorageSuite`, and add a fixture ``bench``. The bench reads and makes files without the storage, so that a
storage that writes and reads the same wrong bytes fails::

    class TestMyStorage(StorageSuite):
        @pytest.fixture
        def bench(self):
            ...
            return Bench(storage, root="some/directory", get=..., put=...)
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, StorageError
from milepost.storage import Storage
from milepost.storage.checked import conditional, linking
from milepost.storage.interface import Buffer

_FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)

BUFFERS: dict[str, Buffer] = {
    "bytes": b"some bytes",
    "bytearray": bytearray(b"some bytes"),
    "memoryview": memoryview(b"xsome bytes")[1:],
    "memoryview of numbers": memoryview(np.arange(4.0)),
    "array": _FLOATS,
    "scalar array": np.array(1.5),
    "boolean array": np.array([True, False]),
    "complex array": np.array([1 + 2j]),
    "bfloat16 array": _FLOATS.astype(ml_dtypes.bfloat16),
    "int4 array": np.arange(5).astype(ml_dtypes.int4),
    "array of records": np.zeros(3, [("qint8", np.int8)]),
    "empty bytes": b"",
    "empty array": np.zeros((0, 3)),
    "empty bfloat16 array": np.zeros((2, 0), ml_dtypes.bfloat16),
}
"""One buffer of each kind that a storage must accept."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A storage to test, and functions that access its files without it.

    Attributes:
        storage: The storage, a new one for each test.
        root: A directory of it that exists and is empty.
        get: Returns the bytes of a file, without the storage.
        put: Makes a file with these bytes, without the storage.
    """

    storage: Storage
    root: str
    get: Callable[[str], bytes]
    put: Callable[[str, bytes], None]

    def path(self, name: str) -> str:
        """A path below the root."""
        return f"{self.root}/{name}"


@contextmanager
def refuses(kind: type[MilepostError], path: str, code: int | None = None) -> Iterator[None]:
    """Expects an error that names the path, and that has the error number if one is given."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.file == path, caught.value
    if code is not None:
        assert isinstance(caught.value, OSError)
        assert caught.value.errno == code, caught.value


def flat(buffer: Buffer) -> bytes:
    """The bytes of a buffer."""
    return buffer if isinstance(buffer, bytes) else bytes(buffer) if isinstance(buffer, bytearray) else buffer.tobytes()


def linking_of(bench: Bench) -> Callable[[str, str], None]:
    """The method `link` of a storage. The test is skipped if there is none, or if its system has no links."""
    storage = linking(bench.storage)
    if storage is None:
        pytest.skip(f"{type(bench.storage).__name__} has no link()")
    bench.put(bench.path("first"), b"")
    try:
        storage.link(bench.path("first"), bench.path("second"))
    except StorageError as error:
        assert bench.storage.list(bench.root) == ["first"]
        if error.errno not in (errno.ENOTSUP, errno.EPERM):
            raise
        pytest.skip(f"this system has no links: {error.problem}")
    for name in bench.storage.list(bench.root):
        bench.storage.remove(bench.path(name))
    return storage.link


def needs_renames(bench: Bench) -> None:
    """Skips the rest of a test for a storage whose saves go without renames."""
    if conditional(bench.storage, bench.root) is not None:
        pytest.skip(f"{type(bench.storage).__name__} needs no rename()")


def replacing_of(bench: Bench) -> Callable[[str, bytes, bytes | None], None]:
    """The method `replace` of a storage. The test is skipped if the storage does not declare it."""
    storage = conditional(bench.storage, bench.root)
    if storage is None:
        pytest.skip(f"{type(bench.storage).__name__} has no conditional writes")
    return storage.replace


class StorageSuite:
    """Tests of a storage; see `milepost.testing.storage_suite`. Each test checks one fact."""

    makes_parents = False
    """Whether a file can be created in a directory that does not exist."""

    gives_up_open_files = True
    """Whether a file that is open for reading can be removed and replaced. If not, this must fail with `EACCES`."""

    has_directories = True
    """Whether a directory exists without files, and nothing can be made below a file. Folders of an object store exist only as parts of keys."""

    # Writing.

    def test_what_is_written_is_there(self, bench: Bench) -> None:
        """Buffers follow each other from the offset on without gaps, and the file holds nothing else."""
        with bench.storage.create(bench.path("f")) as file:
            assert file.path == bench.path("f")
            file.write(0, [b"01", b"", b"234"])
            file.write(5, [b"56"])
            file.sync()
        assert bench.get(bench.path("f")) == b"0123456"

    def test_writes_in_any_order(self, bench: Bench) -> None:
        """Any position can be written, and written again. Bytes that were never written are zero."""
        with bench.storage.create(bench.path("f")) as file:
            file.write(6, [b"late"])
            file.write(1, [b"xx"])
            file.write(2, [b"y"])
        assert bench.get(bench.path("f")) == b"\0xy\0\0\0late"

    def test_an_empty_file(self, bench: Bench) -> None:
        """A file exists as soon as it is created. Writing no bytes at a large offset does not make it longer."""
        with bench.storage.create(bench.path("f")) as file:
            assert bench.get(bench.path("f")) == b""
            file.write(100, [])
            file.write(100, [b"", np.zeros(0)])
        assert bench.get(bench.path("f")) == b""
        assert bench.storage.open(bench.path("f")).size == 0

    @pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS.keys())
    def test_every_kind_of_buffer(self, bench: Bench, buffer: Buffer) -> None:
        """Every kind of buffer can be written, and read into if it is an array."""
        with bench.storage.create(bench.path("f")) as file:
            file.write(0, [b"<", buffer, b">"])
        assert bench.get(bench.path("f")) == b"<" + flat(buffer) + b">"
        opened = bench.storage.open(bench.path("f"))
        target: Any = np.zeros_like(buffer) if isinstance(buffer, np.ndarray) else bytearray(len(flat(buffer)))
        opened.read_into(1, target)
        assert flat(target) == flat(buffer)

    def test_read_only_arrays_can_be_written(self, bench: Bench) -> None:
        """Writing to a file does not need write access to the memory."""
        array = np.arange(5)
        array.flags.writeable = False
        with bench.storage.create(bench.path("f")) as file:
            file.write(0, [array])
        assert bench.get(bench.path("f")) == array.tobytes()

    @pytest.mark.parametrize("array", [np.zeros((4, 4))[:, ::2], np.zeros((4, 5), order="F")])
    def test_scattered_arrays_are_refused(self, bench: Bench, array: Any) -> None:
        """An array that is not contiguous is refused, for writing and for reading."""
        with bench.storage.create(bench.path("f")) as file:
            with pytest.raises((ValueError, TypeError)):
                file.write(0, [b"x" * 1000, array])
            file.write(0, [bytes(1000)])
        with pytest.raises((ValueError, TypeError)):
            bench.storage.open(bench.path("f")).read_into(0, array)

    def test_very_many_buffers(self, bench: Bench) -> None:
        """More buffers can be written at once than the system accepts in one call."""
        with bench.storage.create(bench.path("f")) as file:
            file.write(1, [b"%04d" % n for n in range(5000)])
        assert bench.get(bench.path("f")) == b"\0" + b"".join(b"%04d" % n for n in range(5000))

    def test_threads_write_one_file(self, bench: Bench) -> None:
        """Threads can write different parts of a file at the same time."""
        pieces = [bytes([n]) * 5000 for n in range(40)]
        with bench.storage.create(bench.path("f")) as file, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: file.write(n * 5000, [pieces[n]]), reversed(range(40))))
        assert bench.get(bench.path("f")) == b"".join(pieces)

    def test_a_file_is_created_only_once(self, bench: Bench) -> None:
        """`create` neither replaces nor changes an existing file or directory."""
        bench.put(bench.path("f"), b"old")
        bench.storage.make_directory(bench.path("d"))
        for name in ("f", "d") if self.has_directories else ("f",):
            with refuses(StorageError, bench.path(name), errno.EEXIST):
                bench.storage.create(bench.path(name))
        assert bench.get(bench.path("f")) == b"old"
        needs_renames(bench)
        assert not bench.storage.in_use(bench.path("f"))

    def test_creating_without_a_directory(self, bench: Bench) -> None:
        """A file needs an existing directory, unless the storage makes it."""
        if self.makes_parents:
            bench.storage.create(bench.path("no/f")).close()
            assert bench.storage.is_directory(bench.path("no"))
        else:
            with refuses(CheckpointNotFoundError, bench.path("no/f")):
                bench.storage.create(bench.path("no/f"))

    def test_a_file_is_no_directory(self, bench: Bench) -> None:
        """Nothing can be created below a file."""
        self.needs_directories()
        bench.put(bench.path("f"), b"")
        with refuses(StorageError, bench.path("f/g"), errno.ENOTDIR):
            bench.storage.create(bench.path("f/g"))
        with pytest.raises(StorageError):
            bench.storage.make_directory(bench.path("f/g"))

    def test_a_closed_file_is_not_written(self, bench: Bench) -> None:
        """A second close does nothing. Writing and syncing a closed file fail."""
        file = bench.storage.create(bench.path("f"))
        file.close()
        file.close()
        with refuses(StorageError, bench.path("f")):
            file.write(0, [b"x"])
        with refuses(StorageError, bench.path("f")):
            file.sync()
        assert bench.get(bench.path("f")) == b""

    # Reading.

    def test_reading_anywhere(self, bench: Bench) -> None:
        """Any range of a file can be read, also an empty one at its end."""
        bench.put(bench.path("f"), b"0123456789")
        file = bench.storage.open(bench.path("f"))
        assert (file.path, file.size) == (bench.path("f"), 10)
        assert [file.read(0, 10), file.read(3, 4), file.read(9, 1), file.read(10, 0)] == [
            b"0123456789",
            b"3456",
            b"9",
            b"",
        ]
        target = bytearray(b"....")
        file.read_into(3, memoryview(target)[1:3])
        assert target == b".34."
        file.close()
        file.close()

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 11), (10, 1), (11, 0), (5, 6), (2**40, 1), (0, 2**40), (2**64, 1), (0, 2**64)]
    )
    def test_reading_past_the_end(self, bench: Bench, offset: int, length: int) -> None:
        """A range that the file does not have is reported as corruption, before memory is allocated."""
        bench.put(bench.path("f"), b"0123456789")
        file = bench.storage.open(bench.path("f"))
        if offset + length > 10 and length:
            with refuses(CorruptCheckpointError, bench.path("f")):
                file.read(offset, length)
        if 0 < length < 100:
            with refuses(CorruptCheckpointError, bench.path("f")):
                file.read_into(offset, bytearray(length))

    @pytest.mark.parametrize(("offset", "length"), [(-1, 1), (-5, 3), (3, -1), (-(2**64), 2**64)])
    def test_reading_before_the_beginning(self, bench: Bench, offset: int, length: int) -> None:
        """Negative offsets and lengths, which a damaged file can lead to, are reported as corruption."""
        bench.put(bench.path("f"), b"0123456789")
        file = bench.storage.open(bench.path("f"))
        with refuses(CorruptCheckpointError, bench.path("f")):
            file.read(offset, length)
        if 0 < length < 100:
            with refuses(CorruptCheckpointError, bench.path("f")):
                file.read_into(offset, bytearray(length))

    def test_threads_read_one_file(self, bench: Bench) -> None:
        """Threads can read one file at the same time."""
        bench.put(bench.path("f"), b"".join(b"%05d" % n for n in range(2000)))
        file = bench.storage.open(bench.path("f"))
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda n: file.read(5 * n, 5), range(2000))) == [b"%05d" % n for n in range(2000)]

    def test_opening_what_is_no_file(self, bench: Bench) -> None:
        """Opening a missing file, or a directory, raises the error for it."""
        with refuses(CheckpointNotFoundError, bench.path("no")):
            bench.storage.open(bench.path("no"))
        with refuses(CheckpointNotFoundError, bench.path("no/f")):
            bench.storage.open(bench.path("no/f"))
        bench.storage.make_directory(bench.path("d"))
        bench.put(bench.path("d/f"), b"")
        with refuses(CorruptCheckpointError, bench.path("d")):
            bench.storage.open(bench.path("d"))

    def test_an_open_file_outlives_its_name(self, bench: Bench) -> None:
        """Readers of a file keep its content when it is removed or replaced, or this is refused until they close it."""
        needs_renames(bench)
        for name in ("removed", "replaced"):
            bench.put(bench.path(name), b"old")
        bench.put(bench.path("new"), b"something new")
        files = [bench.storage.open(bench.path(name)) for name in ("removed", "replaced")]
        if not self.gives_up_open_files:
            with refuses(StorageError, bench.path("removed"), errno.EACCES):
                bench.storage.remove(bench.path("removed"))
            with refuses(StorageError, bench.path("new"), errno.EACCES):
                bench.storage.rename(bench.path("new"), bench.path("replaced"))
            assert bench.storage.list(bench.root) == ["new", "removed", "replaced"]
            assert [file.read(0, 3) for file in files] == [b"old", b"old"]
            for file in files:
                file.close()
        bench.storage.remove(bench.path("removed"))
        bench.storage.rename(bench.path("new"), bench.path("replaced"))
        if self.gives_up_open_files:
            assert [file.read(0, 3) for file in files] == [b"old", b"old"]
        assert bench.storage.list(bench.root) == ["replaced"]
        assert bench.get(bench.path("replaced")) == b"something new"

    # Names.

    def test_rename_moves(self, bench: Bench) -> None:
        """A rename moves the bytes to the target and removes the source. The target may exist, or be the source."""
        needs_renames(bench)
        bench.put(bench.path("a"), b"1")
        bench.storage.rename(bench.path("a"), bench.path("b"))
        assert bench.storage.list(bench.root) == ["b"]
        bench.put(bench.path("c"), b"2")
        bench.storage.rename(bench.path("c"), bench.path("b"))
        bench.storage.rename(bench.path("b"), bench.path("b"))
        assert bench.storage.list(bench.root) == ["b"]
        assert bench.get(bench.path("b")) == b"2"

    def test_rename_that_cannot_be(self, bench: Bench) -> None:
        """A missing file cannot be renamed, and no rename replaces a directory. The source stays."""
        needs_renames(bench)
        with refuses(CheckpointNotFoundError, bench.path("no")):
            bench.storage.rename(bench.path("no"), bench.path("b"))
        bench.put(bench.path("a"), b"1")
        bench.storage.make_directory(bench.path("d"))
        with refuses(StorageError, bench.path("a"), errno.EISDIR):
            bench.storage.rename(bench.path("a"), bench.path("d"))
        assert bench.get(bench.path("a")) == b"1"

    def test_a_link_is_another_file_with_the_same_bytes(self, bench: Bench) -> None:
        """Either name can be removed, renamed or replaced, and the other keeps its bytes. Skipped without `link`."""
        link = linking_of(bench)
        for name in ("a", "b"):
            bench.put(bench.path(name), b"1")
            link(bench.path(name), bench.path(f"{name}-link"))
        assert bench.storage.list(bench.root) == ["a", "a-link", "b", "b-link"]
        bench.storage.remove(bench.path("a"))
        bench.storage.rename(bench.path("b-link"), bench.path("moved"))
        with bench.storage.create(bench.path("new")) as file:
            file.write(0, [b"2"])
        bench.storage.rename(bench.path("new"), bench.path("b"))
        bench.storage.sync_directory(bench.root)
        contents = {name: bench.get(bench.path(name)) for name in bench.storage.list(bench.root)}
        assert contents == {"a-link": b"1", "b": b"2", "moved": b"1"}
        opened = bench.storage.open(bench.path("moved"))
        assert (opened.size, opened.read(0, 1)) == (1, b"1")
        assert not bench.storage.in_use(bench.path("moved"))

    def test_a_link_that_cannot_be(self, bench: Bench) -> None:
        """No link replaces a file, and missing files and directories have none. Skipped without `link`."""
        link = linking_of(bench)
        bench.put(bench.path("a"), b"1")
        bench.put(bench.path("b"), b"2")
        bench.storage.make_directory(bench.path("d"))
        for taken in ("b", "d", "a"):
            with refuses(StorageError, bench.path("a"), errno.EEXIST):
                link(bench.path("a"), bench.path(taken))
        with refuses(CheckpointNotFoundError, bench.path("no")):
            link(bench.path("no"), bench.path("c"))
        with refuses(StorageError, bench.path("d")):
            link(bench.path("d"), bench.path("c"))
        assert bench.storage.list(bench.root) == ["a", "b", "d"]
        assert (bench.get(bench.path("a")), bench.get(bench.path("b"))) == (b"1", b"2")

    def test_remove(self, bench: Bench) -> None:
        """A file is removed. A missing file is not an error, and a directory is one."""
        bench.put(bench.path("a"), b"1")
        for name in ("a", "a", "no/f"):
            bench.storage.remove(bench.path(name))
        assert bench.storage.list(bench.root) == []
        self.needs_directories()
        bench.storage.make_directory(bench.path("d"))
        with refuses(StorageError, bench.path("d")):
            bench.storage.remove(bench.path("d"))
        assert bench.storage.is_directory(bench.path("d"))

    def test_make_directory(self, bench: Bench) -> None:
        """Parents are made too. An existing directory is not an error, and a file in its place is one."""
        for path in ("d/e/f", "d/e/f", "d/", "d"):
            bench.storage.make_directory(bench.path(path))
        self.needs_directories()
        assert bench.storage.list(bench.path("d")) == ["e"]
        assert bench.storage.is_directory(bench.path("d/e/f"))
        bench.put(bench.path("file"), b"")
        with pytest.raises(StorageError):
            bench.storage.make_directory(bench.path("file"))

    def test_sync_directory(self, bench: Bench) -> None:
        """An existing directory can be synced, and a missing one cannot."""
        bench.storage.sync_directory(bench.root)
        self.needs_directories()
        with refuses(CheckpointNotFoundError, bench.path("no")):
            bench.storage.sync_directory(bench.path("no"))

    def test_list(self, bench: Bench) -> None:
        """The names directly inside a directory are listed, sorted, including directories. A missing directory has no names."""
        for name in ("b", "a[1]", "ü", "a", ".hidden", "a b"):
            bench.put(bench.path(name), b"")
        bench.storage.make_directory(bench.path("c"))  # which a bench need not make
        bench.put(bench.path("c/inside"), b"")
        assert bench.storage.list(bench.root) == [".hidden", "a", "a b", "a[1]", "b", "c", "ü"]
        assert bench.storage.list(bench.root + "/") == bench.storage.list(bench.root)
        assert bench.storage.list(bench.path("c")) == ["inside"]
        assert bench.storage.list(bench.path("no")) == bench.storage.list(bench.path("a")) == []

    def test_what_is_where(self, bench: Bench) -> None:
        """A path leads to a file, to a directory, or to nothing."""
        bench.put(bench.path("f"), b"")
        bench.storage.make_directory(bench.path("d"))
        bench.put(bench.path("d/inside"), b"")
        kinds = {
            name: (bench.storage.is_file(bench.path(name)), bench.storage.is_directory(bench.path(name)))
            for name in ("f", "d", "no", "no/f", "f/g", "x" * 300)
        }
        nothing = (False, False)
        assert kinds == {
            "f": (True, False),
            "d": (False, True),
            "no": nothing,
            "no/f": nothing,
            "f/g": nothing,
            "x" * 300: nothing,
        }

    @pytest.mark.parametrize("name", ["nul\0", "nul\0/f", "surrogate\ud800"])
    def test_a_path_that_no_file_can_have(self, bench: Bench, name: str) -> None:
        """A path that the system cannot have leads to nothing, and nothing can be created there."""
        if os.name == "nt" and name == "surrogate\ud800":
            pytest.skip("on Windows a file can have this name")
        path, storage = bench.path(name), bench.storage
        bench.put(bench.path("f"), b"1")
        assert (storage.is_file(path), storage.is_directory(path), storage.in_use(path)) == (False, False, False)
        assert storage.list(path) == []
        storage.remove(path)
        for read in (storage.open, storage.modified):
            with refuses(CheckpointNotFoundError, path):
                read(path)
        for write in (storage.create, storage.make_directory):
            with refuses(StorageError, path, errno.EINVAL):
                write(path)
        assert storage.list(bench.root) == ["f"]
        needs_renames(bench)
        with refuses(StorageError, bench.path("f"), errno.EINVAL):
            storage.rename(bench.path("f"), path)
        assert storage.list(bench.root) == ["f"]

    def test_below_a_file_is_nothing(self, bench: Bench) -> None:
        """A path below a file leads to nothing, and there is nothing to remove."""
        bench.put(bench.path("f"), b"1")
        for read in (bench.storage.open, bench.storage.modified):
            with refuses(CheckpointNotFoundError, bench.path("f/g")):
                read(bench.path("f/g"))
        bench.storage.remove(bench.path("f/g"))
        assert bench.storage.list(bench.root) == ["f"]

    def test_ways_to_write_a_path(self, bench: Bench) -> None:
        """Paths with doubled slashes and dots lead to the same file."""
        bench.put(bench.path("f"), b"1")
        for path in ("/f", "./f", ".//./f"):
            assert bench.storage.is_file(bench.path(path))
            assert bench.storage.open(bench.path(path)).read(0, 1) == b"1"

    def test_modified(self, bench: Bench) -> None:
        """A rename does not change the time of the last write."""
        with bench.storage.create(bench.path("f")) as file:
            file.write(0, [b"1"])
        before = bench.storage.modified(bench.path("f"))
        assert abs(before - time.time()) < 60
        needs_renames(bench)
        bench.storage.rename(bench.path("f"), bench.path("g"))
        assert bench.storage.modified(bench.path("g")) == before
        with refuses(CheckpointNotFoundError, bench.path("f")):
            bench.storage.modified(bench.path("f"))

    def test_in_use(self, bench: Bench) -> None:
        """A file is in use from its creation until it is closed, under any name."""
        needs_renames(bench)
        bench.put(bench.path("other"), b"")
        file = bench.storage.create(bench.path("f"))
        assert bench.storage.in_use(bench.path("f"))
        assert bench.storage.in_use(bench.path("f"))
        bench.storage.rename(bench.path("f"), bench.path("g"))
        used = {name: bench.storage.in_use(bench.path(name)) for name in ("f", "g", "other", "no", "no/f")}
        assert used == {"f": False, "g": True, "other": False, "no": False, "no/f": False}
        file.write(0, [b"after the renaming"])
        file.close()
        assert not bench.storage.in_use(bench.path("g"))
        assert bench.get(bench.path("g")) == b"after the renaming"

    def test_reading_does_not_use_a_file(self, bench: Bench) -> None:
        """A file that is open for reading only is not in use."""
        needs_renames(bench)
        bench.put(bench.path("f"), b"")
        file = bench.storage.open(bench.path("f"))
        assert not bench.storage.in_use(bench.path("f"))
        file.close()

    # Conditional writes. These tests are skipped for a storage without `conditional_writes`.

    def test_a_file_is_replaced_if_it_is_as_expected(self, bench: Bench) -> None:
        """A new file, and one whose bytes are known, are written as a whole."""
        replace = replacing_of(bench)
        replace(bench.path("f"), b"first", None)
        assert bench.get(bench.path("f")) == b"first"
        replace(bench.path("f"), b"2", b"first")
        replace(bench.path("f"), b"", b"2")
        replace(bench.path("f"), b"4", b"")
        assert bench.get(bench.path("f")) == b"4"

    def test_a_file_that_is_not_as_expected_stays(self, bench: Bench) -> None:
        """Nothing is written if the file is there, is not there, or has other bytes."""
        replace = replacing_of(bench)
        bench.put(bench.path("f"), b"old")
        for present in (None, b"", b"other"):
            with refuses(StorageError, bench.path("f"), errno.EEXIST):
                replace(bench.path("f"), b"new", present)
        with refuses(StorageError, bench.path("no"), errno.EEXIST):
            replace(bench.path("no"), b"new", b"old")
        assert bench.get(bench.path("f")) == b"old"
        assert bench.storage.list(bench.root) == ["f"]

    @pytest.mark.parametrize("present", [None, b"old"])
    def test_of_several_threads_one_replaces_a_file(self, bench: Bench, present: bytes | None) -> None:
        """Of writes that expect the same, one succeeds, and its bytes are there."""
        replace = replacing_of(bench)
        if present is not None:
            bench.put(bench.path("f"), present)

        def write(number: int) -> bool:
            try:
                replace(bench.path("f"), b"%d" % number, present)
            except StorageError as error:
                if error.errno != errno.EEXIST:
                    raise
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(write, range(8)))
        assert outcomes.count(True) == 1
        assert bench.get(bench.path("f")) == b"%d" % outcomes.index(True)

    def test_a_removed_file_is_not_found_by_its_readers(self, bench: Bench) -> None:
        """A reader gets the bytes that were there when it opened the file, or the error for a missing file."""
        replacing_of(bench)
        content = b"0123456789" * (1 << 20)
        for name in ("removed", "replaced"):
            bench.put(bench.path(name), content)
        files = [bench.storage.open(bench.path(name)) for name in ("removed", "replaced")]
        bench.storage.remove(bench.path("removed"))
        bench.put(bench.path("replaced"), b"9" * len(content))
        for file in files:
            with suppress(CheckpointNotFoundError):
                assert file.read(5, 10) == content[5:15]

    def needs_directories(self) -> None:
        """Skips the rest of a test for a storage whose folders exist only as parts of keys."""
        if not self.has_directories:
            pytest.skip("this storage has no directories of its own")

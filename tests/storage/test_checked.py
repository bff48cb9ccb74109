"""Storages of a program's own that break a promise: every fault comes out as milepost's error, with class, file and remedy."""

import errno

import pytest

from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    StorageError,
    Variable,
    latest_checkpoint,
    load_checkpoint,
)
from milepost.storage import MemoryStorage
from milepost.storage.checked import checked, linking, unchecked
from milepost.storage.default import DEFAULT_STORAGE


class Bucket(MemoryStorage):
    """A storage of a program's own, in which one method can be exchanged."""

    def __init__(self, **methods):
        super().__init__()
        for name, method in methods.items():
            setattr(self, name, method)


def options(storage):
    return CheckpointOptions(storage=storage)


def raising(error):
    def method(*arguments):
        raise error

    return method


@pytest.mark.parametrize("method", ["create", "rename", "sync_directory", "make_directory", "list", "is_file", "open"])
def test_what_a_method_raises_in_a_save_becomes_a_storage_error(method):
    cause = ConnectionResetError(errno.ECONNRESET, "the bucket is gone")
    with pytest.raises(StorageError) as caught:
        Checkpoint(v=Variable(1.0)).save("run/ckpt", options(Bucket(**{method: raising(cause)})))
    error = caught.value
    assert f"Bucket.{method}() of the storage failed" in error.problem
    assert str(error.file).startswith("run")
    assert "ConnectionResetError: [Errno 104] the bucket is gone" in error.found
    assert f"Bucket.{method}()" in error.remedy
    assert "milepost.testing.storage_suite" in error.remedy


def test_the_error_has_the_number_and_the_cause():
    cause = OSError(errno.ENOSPC, "full")
    with pytest.raises(StorageError) as caught:
        Checkpoint(v=Variable(1.0)).write("ckpt", options(Bucket(create=raising(cause))))
    assert (caught.value.errno, caught.value.__cause__) == (errno.ENOSPC, cause)


@pytest.mark.parametrize("kind", [KeyError, FileNotFoundError])
def test_a_missing_file_that_is_told_in_another_way_has_its_own_remedy(kind):
    with pytest.raises(StorageError) as caught:
        load_checkpoint(
            "run/ckpt-1",
            options=CheckpointOptions(
                storage=Bucket(open=raising(kind("run/ckpt-1.index")), is_file=lambda path: True)
            ),
        )
    assert "let Bucket.open() raise milepost.CheckpointNotFoundError if there is no such file" in caught.value.remedy


@pytest.mark.parametrize("method", ["create", "open", "list"])
def test_a_method_that_returns_nothing_is_named(method):
    with pytest.raises(StorageError, match=rf"Bucket\.{method}\(\) of the storage returned a wrong result") as caught:
        Checkpoint(v=Variable(1.0)).save("run/ckpt", options(Bucket(**{method: lambda path: None})))
    assert caught.value.found == "None"
    assert str(caught.value.file).startswith("run")
    assert caught.value.remedy


def test_a_file_that_lacks_a_method_is_refused_when_it_is_made():
    class Half:
        path = "ckpt"

        def write(self, offset, buffers):
            raise AssertionError("it is never written")

    with pytest.raises(StorageError, match=r"Bucket\.create\(\)") as caught:
        Checkpoint(v=Variable(1.0)).write("ckpt", options(Bucket(create=lambda path: Half())))
    assert caught.value.found == "an object of type Half without sync, close"


class Wrapped:
    """A file of a program's own, in which one method fails."""

    def __init__(self, file, failing):
        self._file = file
        self._failing = failing

    def __getattr__(self, name):
        return raising(RuntimeError("timed out")) if name == self._failing else getattr(self._file, name)


@pytest.mark.parametrize("method", ["write", "sync"])
def test_what_a_file_raises_in_a_save_becomes_a_storage_error(method):
    storage = Bucket()
    storage.create = lambda path: Wrapped(MemoryStorage.create(storage, path), method)
    with pytest.raises(StorageError, match=rf"Wrapped\.{method}\(\) of the storage failed"):
        Checkpoint(v=Variable(1.0)).write("ckpt", options(storage))
    assert storage.list("") == []


@pytest.mark.parametrize("method", ["read", "read_into"])
def test_what_a_file_raises_in_a_restore_becomes_a_storage_error(method):
    storage = Bucket()
    path = Checkpoint(v=Variable([1.0] * 100_000)).write("ckpt", options(storage))
    storage.open = lambda path: Wrapped(MemoryStorage.open(storage, path), method)
    live = Checkpoint(v=Variable([0.0] * 100_000))
    with pytest.raises(StorageError, match=rf"Wrapped\.{method}\(\) of the storage failed"):
        live.read(path, options(storage))
    assert not live.v.numpy().any()


def test_errors_that_a_storage_may_raise_are_left_as_they_are():
    error = StorageError("the bucket is read-only", errno=errno.EROFS, file="ckpt")
    with pytest.raises(StorageError) as caught:
        Checkpoint(v=Variable(1.0)).write("ckpt", options(Bucket(create=raising(error))))
    assert caught.value is error


def test_a_storage_of_ones_own_keeps_a_series():
    """The series is told by the storage that the program gave, in every call."""
    storage = Bucket()
    checkpoint = Checkpoint(v=Variable(1.0))
    paths = [checkpoint.save("run/ckpt", options(storage)) for _ in range(2)]
    manager = CheckpointManager(Checkpoint(v=Variable(0.0)), "run", 2, options=options(storage))
    assert (
        manager.restore_or_initialize()
        == paths[1]
        == latest_checkpoint("run", options=CheckpointOptions(storage=storage))
    )
    assert manager.save() == "run/ckpt-3"


def test_milepost_s_own_storages_are_used_as_they_are():
    storage = MemoryStorage()
    assert checked(storage) is storage
    assert checked(None) is DEFAULT_STORAGE


def test_the_given_storage_is_found_again():
    storage = Bucket()
    assert unchecked(checked(storage)) is storage
    assert unchecked(checked(checked(storage))) is storage


def test_whether_a_storage_has_links_is_that_of_the_given_one():
    class Without:
        """All methods but `link`, which need not be there."""

        def __getattr__(self, name):
            if name == "link":
                raise AttributeError(name)
            return getattr(MemoryStorage(), name)

    assert linking(checked(Bucket())) is not None
    assert linking(checked(Without())) is None


def test_what_link_raises_becomes_a_storage_error():
    with pytest.raises(StorageError, match=r"Bucket\.link\(\) of the storage failed"):
        checked(Bucket(link=raising(ConnectionResetError("gone")))).link("a", "b")

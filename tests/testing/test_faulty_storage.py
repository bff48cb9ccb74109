"""The kit against commits with planted bugs: each is caught, and the right one passes."""

import errno
import zlib

import pytest

from milepost.errors import CheckpointNotFoundError, MilepostError, StorageError
from milepost.testing import FaultyStorage

OLD, NEW = b"the old state", b"the new state, which is longer"


def save(storage, state, *, without=(), instead=()):
    """A small commit: a data file named after its checksum, and an index that names it.

    ``without`` leaves steps out, and ``instead`` does them wrongly.
    """
    data = f"data-{zlib.crc32(state):08x}"
    for temporary, content in (("data.tmp", state), ("index.tmp", data.encode())):
        target = "index" if "index in place" in instead and temporary == "index.tmp" else temporary
        if target == "index":
            storage.remove("index")
        with storage.create(target) as file:
            file.write(0, [content[:5]])
            file.write(5, [content[5:]])
            if f"sync of {temporary}" not in without:
                try:
                    file.sync()
                except StorageError:
                    if "sync again" not in instead:
                        raise
                    file.sync()
    first, second = ("index.tmp", "index"), ("data.tmp", data)
    if "data first" not in without:
        first, second = second, first
    for source, target in (first, second):
        if "index in place" not in instead or source != "index.tmp":
            storage.rename(source, target)
        if "sync of the directory between" not in without or source != "data.tmp":
            storage.sync_directory(".")
        if "last sync of the directory" in without and source == "index.tmp":
            storage.operations.pop()
    return data


def load(storage):
    """The state that the index names; damage is an assertion that fails."""
    index = storage.open("index")
    name = index.read(0, index.size).decode("latin-1")
    try:
        data = storage.open(name)
    except MilepostError as error:
        raise AssertionError(f"the index names {name!r}: {error}") from None
    state = data.read(0, data.size)
    assert name == f"data-{zlib.crc32(state):08x}", f"{name} is damaged"
    return state


def saved():
    storage = FaultyStorage()
    save(storage, OLD)
    storage.settle()
    return storage


def check_crashes(storage, returned=True):
    """Every crash leaves the old state or the new, and the new one once the save has returned."""
    count = 0
    points = list(storage.crash_points())
    for point in points:
        for after in storage.crash_states(point):
            count += 1
            try:
                state = load(after)
            except CheckpointNotFoundError:
                raise AssertionError(f"no state at all: {after}") from None
            assert state in (OLD, NEW)
            assert state == NEW or not returned or point < points[-1], "the save had returned"
    return count


def test_the_right_commit_passes():
    """A commit that syncs what it must, in the right order, survives everything."""
    storage = saved()
    save(storage, NEW)
    assert check_crashes(storage) > 30


@pytest.mark.parametrize(
    ("missing", "caught"),
    [
        ("sync of data.tmp", "is damaged"),
        ("sync of index.tmp", "the index names"),
        ("sync of the directory between", "the index names"),
        ("last sync of the directory", "the save had returned"),
        ("data first", "the index names"),
    ],
)
def test_a_step_left_out_is_caught(missing, caught):
    """Each step that is forgotten loses a state at some moment."""
    storage = saved()
    save(storage, NEW, without=[missing])
    assert load(storage) == NEW
    with pytest.raises(AssertionError, match=caught):
        check_crashes(storage)


def test_writing_in_place_is_caught():
    """An index that is not renamed into place is missing or torn at some moment."""
    storage = saved()
    save(storage, NEW, instead=["index in place"])
    assert load(storage) == NEW
    with pytest.raises(AssertionError, match=r"no state at all|the index names"):
        check_crashes(storage)


def test_syncing_again_after_a_failure_is_caught():
    """A second sync that succeeds does not bring back what the first one dropped."""
    counted = saved()
    save(counted, NEW)
    first = [operation.name for operation in counted.operations].index("sync")
    storage = saved()
    storage.fail(first, errno.EIO)
    with pytest.raises(StorageError):
        save(storage, NEW)
    check_crashes(storage, returned=False)
    storage = saved()
    storage.fail(first, errno.EIO)
    save(storage, NEW, instead=["sync again"])
    with pytest.raises(AssertionError, match="is damaged"):
        check_crashes(storage)


@pytest.mark.parametrize("effect", ["nothing", "half", "all"])
@pytest.mark.parametrize("times", [1, None])
def test_any_operation_can_fail(effect, times):
    """Whichever operation fails, however much of it was done, the right commit leaves a state and says that it failed."""
    counted = saved()
    save(counted, NEW)
    for number in range(len(counted.operations)):
        storage = saved()
        storage.fail(number, errno.ENOSPC, effect=effect, times=times)
        with pytest.raises(StorageError) as caught:
            save(storage, NEW)
        assert caught.value.errno == errno.ENOSPC
        assert storage.operations[number].failed == errno.ENOSPC
        points = list(storage.crash_points())
        assert load(next(storage.crash_states())) in (OLD, NEW)
        assert points
        check_crashes(storage, returned=False)


def test_what_a_failure_has_done():
    """A write that fails has written nothing, half or all; other operations were done or not."""
    for effect, expected in (("nothing", b""), ("half", b"12"), ("all", b"1234")):
        storage = FaultyStorage()
        storage.fail(1, errno.EIO, effect=effect)
        with storage.create("f") as file, pytest.raises(StorageError, match="cannot write"):
            file.write(0, [b"12", b"34"])
        assert storage.contents() == {"f": expected}
        storage = FaultyStorage({"a": b""})
        storage.fail(0, errno.EIO, effect=effect)
        with pytest.raises(StorageError, match="cannot rename"):
            storage.rename("a", "b")
        assert list(storage.contents()) == (["b"] if effect == "all" else ["a"])


def test_a_failing_close_closes():
    """As on a network file system, an error of close comes when it is too late."""
    storage = FaultyStorage()
    storage.fail(1, errno.EIO)
    file = storage.create("f")
    with pytest.raises(StorageError, match="cannot close"):
        file.close()
    file.close()
    assert not storage.in_use("f")


def test_failures_of_some_operations_only():
    """A full disk refuses writes, and still renames and removes."""
    storage = FaultyStorage({"a": b""})
    storage.fail(0, errno.ENOSPC, times=None, only={"write", "create"})
    storage.rename("a", "b")
    storage.remove("b")
    for _ in range(2):
        with pytest.raises(StorageError):
            storage.create("f")


def test_reading_can_fail():
    """Questions and reads fail as they do on a disk that is going."""
    storage = FaultyStorage({"f": b"1"})
    file = storage.open("f")
    storage.fail(0, errno.EIO, times=None)
    for ask in (
        lambda: file.read(0, 1),
        lambda: storage.open("f"),
        lambda: storage.list("."),
        lambda: storage.is_file("f"),
    ):
        with pytest.raises(StorageError, match="Input/output error"):
            ask()


def test_a_missing_file_is_not_found_whoever_says_so():
    """An injected ENOENT comes out as a missing file does."""
    storage = FaultyStorage({"f": b"1"})
    storage.fail(0, errno.ENOENT)
    with pytest.raises(CheckpointNotFoundError):
        storage.open("f")


def test_operations_are_recorded():
    """Every call of the storage and of its files is on record, with its paths and its failure."""
    storage = FaultyStorage({"d": None})
    with storage.create("d/f") as file:
        file.write(0, [b"1"])
        file.sync()
    storage.rename("d/f", "d/g")
    storage.open("d/g").read(0, 1)
    with pytest.raises(StorageError):
        storage.create("d/g")
    assert [str(operation) for operation in storage.operations] == [
        "create d/f",
        "write d/f",
        "sync d/f",
        "close d/f",
        "rename d/f -> d/g",
        "open d/g",
        "read d/g",
        "create d/g failed: EEXIST",
    ]
    assert list(storage.crash_points()) == [0, 1, 2, 3, 5]


def test_after_a_crash_nothing_is_in_use():
    """Writers die with the power; what they wrote after it happens elsewhere."""
    storage = FaultyStorage()
    file = storage.create("f")
    storage.sync_directory(".")
    (state,) = storage.crash_states()
    assert storage.in_use("f")
    assert not state.in_use("f")
    file.write(0, [b"1"])
    assert state.contents() == {"f": b""}


def test_recovery_can_be_tested_in_the_same_way():
    """A crash during what follows a crash is a crash like any other."""
    storage = saved()
    save(storage, NEW)
    seen = 0
    for point in storage.crash_points():
        for state in storage.crash_states(point, limit=20):
            for leftover in ("data.tmp", "index.tmp"):
                state.remove(leftover)
            state.sync_directory(".")
            for later in state.crash_points():
                for after in state.crash_states(later, limit=20):
                    seen += 1
                    assert load(after) == load(state)
    assert seen > 100


def test_a_state_tells_its_story():
    """What was lost is in the text of a state, so that a test that fails says why."""
    storage = FaultyStorage()
    with storage.create("f") as file:
        file.write(0, [b"12"])
    stories = {repr(state) for state in storage.crash_states()}
    assert "<FaultyStorage after 0 operations, f: whole: ['f']>" in stories
    assert any("f: zeros" in story for story in stories)
    assert any("lost: create f" in story for story in stories)


def test_renames_between_directories_are_refused():
    """They depend on two syncs, so nothing durable can be built on them."""
    storage = FaultyStorage({"a/f": b"", "b": None})
    with pytest.raises(StorageError) as caught:
        storage.rename("a/f", "b/f")
    assert caught.value.errno == errno.EXDEV


def test_absolute_paths():
    """Paths from the root and relative paths are two trees."""
    storage = FaultyStorage({"/tmp/f": b"1", "f": b"2"})
    assert storage.contents() == {"/tmp": None, "/tmp/f": b"1", "f": b"2"}
    assert (storage.list("/"), storage.list(".")) == (["tmp"], ["f"])

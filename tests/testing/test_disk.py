import random

from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import MilepostError
from milepost.testing import FaultyStorage
from milepost.testing.disk import Image, Link, Sync, Write, aftermaths


def states(storage, point=None, **options):
    """What can be left, as contents."""
    return [after.contents() for after in storage.crash_states(point, **options)]


def values(storage, path):
    """What a file can hold; None if it can be missing."""
    return {contents.get(path) for contents in states(storage)}


def write(storage, path, data, *, sync=True):
    with storage.create(path) as file:
        file.write(0, [data])
        if sync:
            file.sync()


def test_nothing_synced():
    """Of a new file that was not synced, everything can be missing, and anything can be in it up to its length."""
    storage = FaultyStorage()
    write(storage, "f", b"12345678", sync=False)
    found = values(storage, "f")
    assert {None, b"", b"1234", b"12345678", bytes(8), b"1234" + bytes(4)} < found
    (rubbish,) = found - {None, b"", b"1234", b"12345678", bytes(8), b"1234" + bytes(4)}
    assert len(rubbish) == 8


def test_synced_bytes_under_an_unsynced_name():
    """A file whose directory was not synced is there whole or not at all."""
    storage = FaultyStorage()
    write(storage, "f", b"12345678")
    assert values(storage, "f") == {None, b"12345678"}


def test_unsynced_bytes_under_a_synced_name():
    """A name can survive without its bytes."""
    storage = FaultyStorage()
    write(storage, "f", b"12", sync=False)
    storage.sync_directory(".")
    assert None not in values(storage, "f")
    assert {b"", b"12", b"\0\0"} < values(storage, "f")


def test_all_synced():
    """After both syncs there is one possibility."""
    storage = FaultyStorage()
    write(storage, "f", b"12")
    storage.sync_directory(".")
    assert states(storage) == [{"f": b"12"}]


def test_rename_is_atomic_and_late():
    """Without a sync of the directory either name can be found, but never both, and never none."""
    storage = FaultyStorage({"a": b"new", "b": b"old"})
    storage.rename("a", "b")
    assert states(storage) == [{"b": b"new"}, {"a": b"new", "b": b"old"}]
    storage.sync_directory(".")
    assert states(storage) == [{"b": b"new"}]


def test_a_renamed_file_can_have_lost_its_bytes():
    """Renaming a file that was not synced can lose the old content and the new."""
    storage = FaultyStorage({"state": b"old"})
    write(storage, "new", b"new!", sync=False)
    storage.rename("new", "state")
    assert {b"old", b"new!", b"", b"ne"} < values(storage, "state")


def test_names_survive_in_any_combination():
    """Steps that concern different names have no order."""
    storage = FaultyStorage({"a": b"a", "b": b"b", "c": b"c"})
    storage.rename("a", "A")
    storage.rename("b", "B")
    storage.remove("c")
    found = [frozenset(contents) for contents in states(storage)]
    assert len(found) == len(set(found)) == 8
    assert {"a", "B", "c"} in found


def test_steps_of_one_name_keep_their_order():
    """What replaced a name last cannot survive without what replaced it before."""
    storage = FaultyStorage({"x": b"0", "a": b"1", "b": b"2"})
    storage.rename("a", "x")
    storage.rename("b", "x")
    assert states(storage) == [{"x": b"2"}, {"x": b"0", "a": b"1", "b": b"2"}, {"x": b"1", "b": b"2"}]


def test_directories_are_synced_apart():
    """The sync of one directory says nothing about another, not even the one it is in."""
    storage = FaultyStorage({"d": None, "e": None})
    write(storage, "d/f", b"1")
    write(storage, "e/f", b"2")
    storage.sync_directory("d")
    assert {tuple(sorted(contents)) for contents in states(storage)} == {("d", "d/f", "e"), ("d", "d/f", "e", "e/f")}


def test_a_directory_that_is_made_is_durable_at_once():
    """`make_directory` syncs what is above; between the two a power cut can take the directory."""
    storage = FaultyStorage()
    storage.make_directory("a/b")
    assert [str(operation) for operation in storage.operations] == [
        "make_directory a",
        "sync_directory ",
        "make_directory a/b",
        "sync_directory a",
    ]
    assert [states(storage, point) for point in storage.crash_points()] == [
        [{}],
        [{"a": None}, {}],
        [{"a": None}],
        [{"a": None, "a/b": None}, {"a": None}],
        [{"a": None, "a/b": None}],
    ]


def test_writes_to_one_file_survive_apart():
    """A later write can survive without an earlier one, and any of them in part; what was synced is never touched."""
    storage = FaultyStorage()
    with storage.create("f") as file:
        file.write(0, [b"safe"])
        file.sync()
        storage.sync_directory(".")
        file.write(4, [b"AAAA"])
        file.write(8, [b"BBBB"])
        found = values(storage, "f")
        assert {b"safe", b"safeAAAA", b"safe\0\0\0\0BBBB", b"safeAA\0\0BBBB", b"safeAAAABB"} <= found
        assert all(content.startswith(b"safe") for content in found)
        file.write(0, [b"xx"])
        assert {b"xxfe", b"xafe"} <= {content[:4] for content in values(storage, "f")}


def test_many_writes():
    """Of many writes, each can be missing or torn alone, and all from any one on."""
    storage = FaultyStorage()
    with storage.create("f") as file:
        storage.sync_directory(".")
        for n in range(10):
            file.write(2 * n, [b"%02d" % n])
    whole = b"00010203040506070809"
    found = values(storage, "f")
    assert {whole[: 2 * n] for n in range(11)} < found
    assert {whole[: 2 * n] + b"\0\0" + whole[2 * n + 2 :] for n in range(9)} < found


def test_a_failed_sync_is_not_made_up_for():
    """After a failed sync the bytes may be lost, even if another sync succeeds; later bytes are safe."""
    storage = FaultyStorage()
    with storage.create("f") as file:
        storage.sync_directory(".")
        file.write(0, [b"12"])
        storage.fail(len(storage.operations), 5)
        try:
            file.sync()
        except MilepostError:
            pass
        file.write(2, [b"34"])
        file.sync()
    found = values(storage, "f")
    assert {b"1234", b"\0\x0034"} <= found
    assert all(content.endswith(b"34") for content in found)


def test_a_failed_sync_of_names_can_be_made_up_for():
    """Names are not dropped."""
    storage = FaultyStorage()
    write(storage, "f", b"1")
    storage.fail(len(storage.operations), 5)
    try:
        storage.sync_directory(".")
    except MilepostError:
        pass
    assert values(storage, "f") == {None, b"1"}
    storage.sync_directory(".")
    assert values(storage, "f") == {b"1"}


def test_the_limit_keeps_the_extremes():
    """Of too many states, all survived, nothing survived, and all bytes lost are among those that are left."""
    storage = FaultyStorage()
    for n in range(15):
        write(storage, f"{n:02}", b"data", sync=False)
    some = states(storage, limit=20)
    assert len(some) == 20
    assert some[:3] == [
        {f"{n:02}": b"data" for n in range(15)},
        {f"{n:02}": b"" for n in range(15)},
        {},
    ]
    assert some == states(storage, limit=20)
    assert some != states(storage, limit=20, seed=1)
    assert len(states(storage, limit=500)) == 500
    assert states(storage, limit=1) == some[:1]


def test_images_are_compared_as_programs_see_them():
    """Losing what nobody could find makes no other state."""
    image = Image()
    steps = [Link(0, "d", 2, is_directory=True), Link(2, "f", 3), Write(3, 0, b"1")]
    found = [aftermath.image.contents() for aftermath in aftermaths(image, steps, limit=100, seed=0)]
    assert len(found) == len({str(contents) for contents in found})
    assert {} in [{path: data for path, data in contents.items() if path not in "./"} for contents in found]


NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=6), st.booleans()),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("sync_directory"), st.sampled_from([".", "d"])),
    ),
    max_size=7,
)


def run(storage, steps):
    for name, *arguments in steps:
        try:
            if name == "write":
                path, data, sync = arguments
                write(storage, path, data, sync=sync)
            else:
                getattr(storage, name)(*arguments)
        except MilepostError:
            pass


def names_and_whole_files(found):
    """States as sets, without those in which a file is torn in a random way."""
    return {frozenset(contents.items()) for contents in found}


@given(STEPS)
def test_what_programs_see_can_survive(steps):
    """All may have survived, at every moment, and each state comes once."""
    storage = FaultyStorage({"d": None, "a": b"old"})
    run(storage, steps)
    found = states(storage, limit=100)
    assert found[0] == storage.contents()
    assert len(found) == len(names_and_whole_files(found)) <= 100


@given(STEPS, st.sampled_from([".", "d"]))
def test_a_sync_only_takes_possibilities_away(steps, directory):
    """Whatever can be left after a sync could have been left before it."""
    storage = FaultyStorage({"d": None, "a": b"old"})
    run(storage, steps)
    before = states(storage, limit=10_000)
    storage.sync_directory(directory)
    after = states(storage, limit=10_000)
    if len(before) < 10_000:
        assert names_and_whole_files(after) <= names_and_whole_files(before)


@given(STEPS, st.integers(0, 2**32))
def test_a_crash_is_a_beginning(steps, seed):
    """What is left is durable: without new steps, a second power cut takes nothing."""
    storage = FaultyStorage({"d": None, "a": b"old"})
    run(storage, steps)
    every = list(storage.crash_states(limit=50))
    state = random.Random(seed).choice(every)
    assert [after.contents() for after in state.crash_states()] == [state.contents()]


@given(STEPS)
def test_all_synced_leaves_one_possibility(steps):
    """After all files and all directories were synced, a power cut takes nothing."""
    storage = FaultyStorage({"d": None, "a": b"old"})
    run(storage, [(*step[:3], True) if step[0] == "write" else step for step in steps])
    storage.sync_directory(".")
    storage.sync_directory("d")
    assert states(storage) == [storage.contents()]


def test_syncs_of_files_and_directories_do_not_mix():
    """A directory's sync does not sync the files in it."""
    steps = [Link(0, "f", 2), Write(2, 0, b"1"), Sync(0)]
    found = {aftermath.image.contents()["f"] for aftermath in aftermaths(Image(), steps, limit=100, seed=0)}
    assert b"" in found


def test_a_link_makes_bytes_durable_and_not_its_name():
    """The name survives or not; where it does, the bytes are whole, although nobody synced the file itself."""
    storage = FaultyStorage()
    write(storage, "f", b"12", sync=False)
    storage.link("f", "g")
    assert values(storage, "g") == values(storage, "f") == {None, b"12"}
    storage.remove("f")
    storage.sync_directory(".")
    assert states(storage) == [{"g": b"12"}]


def test_names_of_one_file_have_the_same_bytes():
    """Whatever of an unsynced write is lost."""
    storage = FaultyStorage({"f": b""})
    storage.link("f", "g")
    storage.sync_directory(".")
    storage._write("f", storage._find("f"), 0, b"1234", True)
    assert all(contents["f"] == contents["g"] for contents in states(storage))
    assert len(states(storage)) > 2

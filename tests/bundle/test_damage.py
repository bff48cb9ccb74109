"""Files that are damaged, swapped, cut short or made to do harm: always an error of ours that says which."""

import contextlib
import functools
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.bundle import Fetch, open_bundle
from milepost.bundle.format.messages import BundleEntry
from milepost.bundle.format.slices import slice_key
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.storage import MemoryStorage
from milepost.tensor import TensorSlice
from tests.bundle.bundles import content, edit, put, put_rows, rows, write
from tests.table import tables

resource = pytest.importorskip("resource", reason="the tests measure their memory by it")

INDEX = "x.index"
DATA = "x.data-00000-of-00001"
X = np.arange(12, dtype=np.float32).reshape(3, 4)
TENSORS = {
    "number": np.float64(2.5),
    "text": np.array([b"a", b"bc"], object),
    "x": X,
    "sliced": ((3, 4), {"0,2:-": X[:2], "2,1:-": X[2:]}),
}
TENSORS_BY_OFFSET = {"number": 8, "text": 9, "x": 48, "sliced": 48}


def most_memory():
    """The most that this process ever had, in KiB; macOS tells it in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most


@functools.cache
def original(path):
    return content(storage_with(), path)


def storage_with(**files):
    """A small bundle whose files can be replaced."""
    storage = MemoryStorage()
    write(storage, "x", TENSORS, alignment=1)
    for path, data in files.items():
        put(storage, {"index": INDEX, "data": DATA}[path], data)
    return storage


def attempts(storage):
    """All that a user can do with a checkpoint."""
    reader = open_bundle(storage, "x")
    yield reader.verify
    yield reader.check_files
    for key in [*TENSORS, *reader.keys()]:
        yield lambda key=key: key in reader
        yield lambda key=key: reader.spec(key)
        yield lambda key=key: reader.read(key)
        yield lambda key=key: reader.check(key)
        yield lambda key=key: reader.read(key, TensorSlice(((0, 1),) * len(reader.spec(key).shape)))
        yield lambda key=key: fetch_one(reader, key, None)
        yield lambda key=key: fetch_one(reader, key, np.zeros(3))
        yield lambda key=key: fetch_one(reader, key, np.zeros((3, 4), np.float32))


def fetch_one(reader, key, destination):
    fetch = Fetch(reader)
    fetch.add(key, destination)
    fetch.verify()
    fetch.deliver()


class TestFlippedBytes:
    def test_of_the_data(self):
        """Each byte of a data file belongs to a tensor, which is named."""
        whole = original(DATA)
        end = 0
        for key, size in TENSORS_BY_OFFSET.items():
            for position in range(end, end + size):
                damaged = bytearray(whole)
                damaged[position] ^= 1 << position % 8
                with pytest.raises(CorruptCheckpointError) as caught:
                    open_bundle(storage_with(data=bytes(damaged)), "x").verify()
                assert caught.value.key.split(" ")[0] == key
                assert caught.value.file == DATA
                assert caught.value.expected
                assert caught.value.found
                assert "byte" in caught.value.problem
            end += size
        assert end == len(whole)

    def test_of_the_index(self):
        """No byte of an index can change unnoticed, but for the zeros in its footer that nobody reads."""
        whole = original(INDEX)
        unread = []
        for position in range(len(whole)):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << position % 8
            try:
                open_bundle(storage_with(index=bytes(damaged)), "x").verify()
            except MilepostError as error:
                assert INDEX in str(error.file)  # noqa: PT017 - most positions raise, some do not
            else:
                unread.append(position)
        padding = whole.rindex(b"\0" * 30)
        assert unread == list(range(unread[0], len(whole) - 8))
        assert unread[0] <= padding

    def test_of_one_block_of_the_index(self):
        """The keys of other blocks can be read, however many are asked for."""
        storage = MemoryStorage()
        write(storage, "x", {f"k{number:03}": np.float32(number) for number in range(300)})
        damaged = bytearray(tables.write(sorted(rows(storage, "x").items()), block_size=2000))
        damaged[5000] ^= 1  # in the last of its blocks, which begins with k216
        put(storage, INDEX, bytes(damaged))
        reader = open_bundle(storage, "x")
        for number in range(200):
            assert reader.entry(f"k{number:03}").size == 4
        assert "k1000" not in reader
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            reader.entry("k299")
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            reader.keys()

    def test_restores_notice_as_well(self):
        """Reading finds what verifying finds."""
        for position in range(len(original(DATA))):
            damaged = bytearray(original(DATA))
            damaged[position] ^= 0x10
            with open_bundle(storage_with(data=bytes(damaged)), "x") as reader:
                fetch = Fetch(reader)
                for key in reader.keys():  # noqa: SIM118 - a reader is no mapping
                    fetch.add(key, None)
                with pytest.raises(CorruptCheckpointError) as caught:
                    fetch.verify()
                assert caught.value.file == DATA


class TestTruncation:
    def test_of_the_data(self):
        """A tensor beyond the end is named, before anything is made for it."""
        for length in range(len(original(DATA))):
            reader = open_bundle(storage_with(data=original(DATA)[:length]), "x")
            for check in (reader.check_files, reader.verify):
                with pytest.raises(CorruptCheckpointError, match="beyond the end") as caught:
                    check()
                assert caught.value.file == DATA
                assert caught.value.key

    def test_of_the_index(self):
        """An index without its end is none."""
        for length in range(len(original(INDEX))):
            with pytest.raises(CorruptCheckpointError) as caught:
                open_bundle(storage_with(index=original(INDEX)[:length]), "x")
            assert INDEX in str(caught.value.file)

    def test_more_than_there_should_be(self):
        """Bytes after the last tensor do no harm."""
        open_bundle(storage_with(data=original(DATA) + b"more"), "x").verify()


class TestWrongFiles:
    def test_swapped_data_files(self):
        """Data files that changed places are noticed by their checksums."""
        storage = MemoryStorage()
        write(storage, "x", {"a": np.arange(4), "b": np.arange(4) + 1}, shards=2)
        first, second = "x.data-00000-of-00002", "x.data-00001-of-00002"
        contents = content(storage, first), content(storage, second)
        put(storage, first, contents[1])
        put(storage, second, contents[0])
        reader = open_bundle(storage, "x")
        reader.check_files()
        for key, file in (("a", first), ("b", second)):
            with pytest.raises(CorruptCheckpointError, match="checksum") as caught:
                reader.read(key)
            assert (caught.value.key, caught.value.file) == (key, file)

    def test_the_index_of_another_checkpoint(self):
        """An index does not fit the data of another save."""
        storage = MemoryStorage()
        write(storage, "x", {"a": np.arange(4)})
        write(storage, "y", {"a": np.arange(4) + 1})
        put(storage, "x.index", content(storage, "y.index"))
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            open_bundle(storage, "x").read("a")

    @pytest.mark.parametrize("alien", [b"", b"\x89HDF\r\n\x1a\n" + bytes(200), b"PK\x03\x04" * 40, b"{}" * 100])
    def test_an_index_of_another_format(self, alien):
        """A file that is no table is refused and named."""
        with pytest.raises(CorruptCheckpointError, match="not a checkpoint index") as caught:
            open_bundle(storage_with(index=alien), "x")
        assert caught.value.file == INDEX

    def test_a_table_of_something_else(self):
        """A table without a header is not an index."""
        storage = storage_with()
        put_rows(storage, "x", {b"a": b"b"})
        with pytest.raises(CorruptCheckpointError, match="no header") as caught:
            open_bundle(storage, "x")
        assert caught.value.file == INDEX

    def test_a_directory_in_place_of_a_data_file(self, tmp_path):
        """A directory is not read as data."""
        from milepost.storage import LocalStorage

        write(LocalStorage(), f"{tmp_path}/x", {"a": 1})
        (tmp_path / DATA).unlink()
        (tmp_path / DATA).mkdir()
        with open_bundle(LocalStorage(), tmp_path / "x") as reader, pytest.raises(CorruptCheckpointError) as caught:
            reader.read("a")
        assert (caught.value.key, caught.value.file) == ("a", f"{tmp_path}/{DATA}")

    def test_a_missing_data_file(self):
        """A missing file is no damage, but not found."""
        storage = storage_with()
        storage.remove(DATA)
        with pytest.raises(CheckpointNotFoundError) as caught:
            open_bundle(storage, "x").read("x")
        assert (caught.value.key, caught.value.file) == ("x", DATA)


def shape(*lengths):
    def change(entry):
        entry.ClearField("shape")
        for length in lengths:
            entry.shape.dim.add(size=length)

    return change


def fields(**values):
    def change(message):
        for name, value in values.items():
            setattr(message, name, value)

    return change


def both(*changes):
    def change(message):
        for part in changes:
            part(message)

    return change


class TestHostileIndex:
    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (fields(num_shards=0), "impossible number"),
            (fields(num_shards=-1), "impossible number"),
            (fields(num_shards=2**31 - 1), "impossible number"),
            (fields(endianness=2), "unknown byte order"),
        ],
    )
    def test_headers(self, change, problem):
        """A header that no writer makes is refused."""
        storage = storage_with()
        edit(storage, "x", "", change)
        with pytest.raises(CorruptCheckpointError, match=problem) as caught:
            open_bundle(storage, "x")
        assert caught.value.file == INDEX

    @pytest.mark.parametrize(
        ("change", "problem", "file"),
        [
            (fields(shard_id=1), "data file that does not exist", INDEX),
            (fields(shard_id=2**31 - 1), "data file that does not exist", INDEX),
            (fields(offset=10**6), "beyond the end", DATA),
            (fields(offset=2**63 - 1), "beyond the end", DATA),
            (fields(offset=-1), "negative place", INDEX),
            (both(shape(2**40), fields(size=2**42)), "beyond the end", DATA),
            (both(shape(2**61 - 1), fields(size=2**63 - 4)), "beyond the end", DATA),
            (shape(2**40), "size does not fit", INDEX),
            (shape(4, 4), "size does not fit", INDEX),
            (shape(2**62, 4), "size does not fit", INDEX),
            (both(shape(2**62, 2**62, 0), fields(size=0)), "no array can have", INDEX),
            (fields(dtype=2), "size does not fit", INDEX),
            (fields(dtype=0), "without an element type", INDEX),
            (fields(dtype=7), "damaged", DATA),
            (fields(dtype=21), "size does not fit", INDEX),
            (both(fields(dtype=7), shape(45)), "size does not fit", INDEX),
            (both(fields(dtype=7), shape(2**62)), "size does not fit", INDEX),
            (both(fields(dtype=7), shape(0, 2**62, 2**62)), "no array can have", INDEX),
            (both(fields(dtype=21), shape(2**62)), "size does not fit", INDEX),
            (both(fields(dtype=21), shape(9)), "damaged", DATA),
            (fields(crc32c=0), "checksum", DATA),
            (lambda entry: entry.slices.add(), "another rank", INDEX),
        ],
    )
    def test_entries(self, change, problem, file):
        """An entry that lies is refused before memory is taken for what it claims."""
        storage = storage_with()
        edit(storage, "x", "x", change)
        tracemalloc.start()
        try:
            with open_bundle(storage, "x") as reader, pytest.raises(CorruptCheckpointError, match=problem) as caught:
                reader.read("x")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert caught.value.key == "x"
        assert caught.value.file == file
        assert peak < 1 << 20

    @pytest.mark.parametrize("number", [34, 101, 2**31 - 1, -1])
    def test_unknown_types(self, number):
        """A type of a newer TensorFlow is not damage, but not supported."""
        storage = storage_with()
        edit(storage, "x", "x", fields(dtype=number))
        with pytest.raises(UnsupportedError, match="element type") as caught:
            open_bundle(storage, "x").read("x")
        assert caught.value.key == "x"

    def test_entries_that_overlap(self):
        """Many tensors cannot claim the same bytes, and so be more than the files are."""
        storage = MemoryStorage()
        write(storage, "x", {"a": np.zeros(100), "b": np.ones(100)})
        edit(storage, "x", "b", fields(offset=792))
        reader = open_bundle(storage, "x")
        for check in (reader.check_files, reader.verify):
            with pytest.raises(CorruptCheckpointError, match="same bytes") as caught:
                check()
            assert (caught.value.key, caught.value.file) == ("b", DATA)

    def test_an_entry_in_a_file_that_does_not_exist(self):
        """A check of all entries finds it too."""
        storage = MemoryStorage()
        write(storage, "x", {"a": np.zeros(100), "b": np.ones(100)})
        edit(storage, "x", "b", fields(shard_id=1))
        with open_bundle(storage, "x") as reader:
            for check in (reader.check_files, reader.verify):
                with pytest.raises(CorruptCheckpointError, match="data file that does not exist") as caught:
                    check()
                assert (caught.value.key, caught.value.file) == ("b", INDEX)

    def test_entries_that_are_no_messages(self):
        """An entry that cannot be decoded is named."""
        storage = storage_with()
        put_rows(storage, "x", {**rows(storage, "x"), b"bad": b"\xff\xff"})
        reader = open_bundle(storage, "x")
        for action in (lambda: reader.spec("bad"), reader.verify):
            with pytest.raises(CorruptCheckpointError, match="cannot be decoded") as caught:
                action()
            assert (caught.value.key, caught.value.file) == ("bad", INDEX)

    def test_a_header_that_is_no_message(self):
        """A header that cannot be decoded is refused."""
        storage = storage_with()
        put_rows(storage, "x", {**rows(storage, "x"), b"": b"\xff\xff"})
        with pytest.raises(CorruptCheckpointError, match="header") as caught:
            open_bundle(storage, "x")
        assert caught.value.file == INDEX


class TestHostileSlices:
    KEY = slice_key(b"sliced", TensorSlice.parse("0,2:-"))

    def assert_refused(self, storage, problem):
        reader = open_bundle(storage, "x")
        for action in (lambda: reader.read("sliced"), lambda: reader.check("sliced"), reader.verify):
            with pytest.raises(CorruptCheckpointError, match=problem) as caught:
                action()
            assert caught.value.key.startswith("sliced")
            assert caught.value.file == INDEX

    def test_without_its_entry(self):
        """A slice that the index promises must be there."""
        storage = storage_with()
        table = rows(storage, "x")
        del table[self.KEY]
        put_rows(storage, "x", table)
        self.assert_refused(storage, "slice 0,2:- of the tensor is not as its entry says")

    @pytest.mark.parametrize(
        "change", [both(shape(4, 2), fields()), both(shape(1, 8)), both(fields(dtype=3)), both(shape(8))]
    )
    def test_of_another_type_or_shape(self, change):
        """A slice must be what its key says."""
        storage = storage_with()
        table = rows(storage, "x")
        entry = BundleEntry.FromString(table[self.KEY])
        change(entry)
        put_rows(storage, "x", {**table, self.KEY: entry.SerializeToString()})
        self.assert_refused(storage, "slice 0,2:- of the tensor is not as its entry says")

    def test_of_itself(self):
        """A slice that is cut into slices leads nowhere."""
        storage = storage_with()
        table = rows(storage, "x")
        entry = BundleEntry.FromString(table[self.KEY])
        entry.slices.add().extent.add()
        entry.slices[0].extent.add()
        put_rows(storage, "x", {**table, self.KEY: entry.SerializeToString()})
        self.assert_refused(storage, "of the tensor is not as its entry says")

    def test_a_huge_tensor_of_small_slices(self):
        """A shape beyond all files is not allocated: its slices do not cover it."""
        storage = storage_with()
        edit(storage, "x", "sliced", shape(2**31, 2**31))
        tracemalloc.start()
        try:
            with pytest.raises(CorruptCheckpointError):
                open_bundle(storage, "x").read("sliced")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20

    def test_a_key_that_only_looks_like_one(self):
        """Keys that begin with a zero byte are slices or damage."""
        storage = storage_with()
        table = rows(storage, "x")
        put_rows(storage, "x", {**table, b"\0\0\0": table[self.KEY]})
        with pytest.raises(CorruptCheckpointError) as caught:
            open_bundle(storage, "x").verify()
        assert caught.value.file == INDEX


class TestFuzz:
    """Nothing but our errors comes out, and memory stays small, whatever the files hold."""

    @settings(max_examples=150)
    @given(st.data())
    def test_random_changes(self, data):
        """Bytes replaced, inserted and removed in either file."""
        files = {}
        for name, path in (("index", INDEX), ("data", DATA)):
            changed = bytearray(original(path))
            for _ in range(data.draw(st.integers(0, 3))):
                start = data.draw(st.integers(0, len(changed)))
                stop = min(len(changed), start + data.draw(st.integers(0, 8)))
                changed[start:stop] = data.draw(st.binary(max_size=8))
            files[name] = bytes(changed)
        self.survive(storage_with(**files))

    @settings(max_examples=300)
    @given(st.data())
    def test_random_rows(self, data):
        """Entries changed inside tables whose checksums are right."""
        storage = storage_with()
        table = rows(storage, "x")
        for _ in range(data.draw(st.integers(1, 3))):
            key = data.draw(st.sampled_from(sorted(table)))
            row = bytearray(table[key])
            start = data.draw(st.integers(0, len(row)))
            row[start : start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
            table[key] = bytes(row)
        for key, row in data.draw(st.dictionaries(st.binary(max_size=12), st.binary(max_size=20), max_size=2)).items():
            table.setdefault(key, row)
        put_rows(storage, "x", table)
        self.survive(storage)

    @settings(max_examples=300)
    @given(st.data())
    def test_random_numbers(self, data):
        """Well-formed messages with any numbers in them."""
        storage = storage_with()
        numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 70) | st.sampled_from([2**n for n in range(63)])
        small = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 40)
        table = rows(storage, "x")
        for key in data.draw(st.sets(st.sampled_from(sorted(table)[1:]), min_size=1)):
            entry = BundleEntry.FromString(table[key])
            for name in data.draw(st.sets(st.sampled_from(["dtype", "shard_id", "offset", "size", "shape", "slices"]))):
                if name == "shape":
                    shape(*data.draw(st.lists(numbers, max_size=4)))(entry)
                elif name == "slices":
                    piece = entry.slices.add()
                    for _ in entry.shape.dim:
                        piece.extent.add(start=data.draw(numbers), length=data.draw(numbers))
                else:
                    setattr(entry, name, data.draw(small if name in ("dtype", "shard_id") else numbers))
            table[key] = entry.SerializeToString()
        put_rows(storage, "x", table)
        self.survive(storage)

    @staticmethod
    def survive(storage):
        before = most_memory()
        try:
            for attempt in attempts(storage):
                with contextlib.suppress(MilepostError):
                    attempt()
        except MilepostError:
            pass
        # The limit is far above the noise, and far below what a wrong shape would take.
        assert most_memory() - before < 200_000

import os
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle import Fetch, open_bundle
from milepost.bundle import index as index_module
from milepost.bundle.format import columns
from milepost.bundle.format import entry as entries
from milepost.bundle.format.messages import BundleEntry
from milepost.coding.crc32c import crc32c, mask
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    KeyNotFoundError,
    MilepostError,
    MismatchError,
    UnsupportedError,
)
from milepost.storage import LocalStorage, MemoryStorage
from milepost.tensor import DType, TensorSlice, TensorSpec
from tests.bundle.bundles import (
    BIG_ENDIAN,
    EVERY_DTYPE,
    bundle,
    content,
    edit,
    example,
    put,
    put_rows,
    rows,
    same,
    write,
)
from tests.table import tables

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
STRINGS = np.array([[b"a", b"bc"], [b"", b"d\0"]], object)


@pytest.fixture
def reader():
    return bundle({"b/x": X, "a": np.float64(2.5), "s": STRINGS, "e": np.zeros((0, 3), np.int8)})


class TestLookingAround:
    def test_keys_are_sorted_names(self):
        """Neither the header nor slices are among them."""
        reader = bundle({"b": 1, "a": ((2,), {"0,1": [1], "1,1": [2]}), "é": 3, "Z": 4})
        assert reader.keys() == ["Z", "a", "b", "é"]

    def test_in(self, reader):
        """A key is in the checkpoint or not; anything else is not."""
        assert "b/x" in reader
        assert not any(other in reader for other in ["b", "", "\0", "\ud800", 5, None, b"a"])

    def test_spec(self, reader):
        """Type and shape are known without reading."""
        assert reader.spec("b/x") == TensorSpec(DType.of("float32"), (3, 4, 5))
        assert reader.spec("s") == TensorSpec(DType.of("string"), (2, 2))

    @pytest.mark.parametrize("key", ["", "b", "b/y", "\0", "\ud800"])
    def test_an_unknown_key(self, reader, key):
        """Every method says which key, in which checkpoint."""
        calls = [reader.spec, reader.entry, reader.extent, reader.read, reader.check, reader.map]
        for call in [*calls, lambda key: reader.read_into(key, np.zeros(1))]:
            with pytest.raises(KeyNotFoundError) as caught:
                call(key)
            assert (caught.value.key, caught.value.file) == (key, "x")

    def test_an_unknown_key_names_those_like_it(self, reader):
        """A misspelt key is answered with the right one, the beginning or the end of a key with all of it."""
        for wrong in ("b", "b/xx", "x"):
            with pytest.raises(KeyNotFoundError, match="did you mean 'b/x'"):
                reader.read(wrong)

    def test_one_tensor_of_many(self):
        """Opening and reading one tensor does not read the whole index."""
        storage = MemoryStorage()
        write(storage, "x", {f"layer_{n}/kernel/.ATTRIBUTES/VARIABLE_VALUE": n for n in range(20_000)})
        read = []
        opened = storage.open

        def counting(path):
            file = opened(path)
            original = file.read
            file.read = lambda offset, length: (read.append((path, length)), original(offset, length))[1]
            return file

        storage.open = counting
        reader = open_bundle(storage, "x")
        assert [path for path, _ in read] == ["x.index"] * len(read)
        reader.read("layer_777/kernel/.ATTRIBUTES/VARIABLE_VALUE")
        assert sum(length for path, length in read if path == "x.index") < 600_000

    def test_nothing_is_decoded_that_is_not_asked_for(self, monkeypatch):
        """A damaged entry does not keep others from being read."""
        storage = MemoryStorage()
        write(storage, "x", {"good": 1, "bad": 2})
        edit(storage, "x", "bad", lambda entry: entry.shape.dim.add(size=-1))
        reader = open_bundle(storage, "x")
        assert reader.keys() == ["bad", "good"]
        assert reader.read("good") == 1
        with pytest.raises(CorruptCheckpointError) as caught:
            reader.spec("bad")
        assert (caught.value.key, caught.value.file) == ("bad", "x.index")


class TestReading:
    @pytest.mark.parametrize("key", ["a", "b/x", "s", "e"])
    def test_is_fresh_and_writable(self, reader, key):
        """Each read gives an array of its own."""
        first, second = reader.read(key), reader.read(key)
        assert same(first, second)
        assert not np.shares_memory(first, second)
        assert first.flags.writeable
        assert first.flags.aligned

    def test_a_scalar_is_an_array(self, reader):
        """Rank 0 makes no difference to what comes back."""
        assert type(reader.read("a")) is np.ndarray
        assert reader.read("a").shape == ()

    @given(st.data())
    def test_any_box(self, data):
        """A box of a tensor is what indexing gives."""
        array = data.draw(st.sampled_from([X, STRINGS, np.arange(10**6).reshape(10, -1, 10), X.astype(np.float16).T]))
        extents = []
        for length in array.shape:
            start = data.draw(st.integers(0, length - 1))
            extents.append(data.draw(st.sampled_from([(0, -1), (start, length - start), (start, 1)])))
        box = TensorSlice(tuple(extents))
        expected = array[box.resolve(array.shape)]
        reader = bundle({"x": array})
        assert same(reader.read("x", box), np.ascontiguousarray(expected))
        destination = np.empty_like(expected)
        reader.read_into("x", destination, box)
        assert same(destination, np.ascontiguousarray(expected))

    def test_a_box_of_a_large_tensor_takes_little_memory(self):
        """Cutting a column from a matrix does not need the matrix."""
        reader = bundle({"x": np.arange(8_000_000).reshape(2, -1, 4)})
        tracemalloc.start()
        try:
            column = reader.read("x", TensorSlice.parse("-:-:3,1"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        np.testing.assert_array_equal(column.ravel(), np.arange(3, 8_000_000, 4))
        assert peak < column.nbytes + (8 << 20)

    @pytest.mark.parametrize("box", ["0,4:-:-", "-:-", "3,1:-:-"])
    def test_a_box_outside_the_tensor(self, reader, box):
        """A box must lie inside the tensor and have its rank."""
        for call in (reader.read, reader.check):
            with pytest.raises(MismatchError):
                call("b/x", TensorSlice.parse(box))

    def test_an_empty_box(self, reader):
        """A box without elements is an empty array."""
        assert reader.read("b/x", TensorSlice(((1, 0), (0, -1), (0, -1)))).shape == (0, 4, 5)

    def test_into_memory_of_any_layout(self, reader):
        """A destination need not be contiguous."""
        destination = np.empty((5, 4, 3), np.float32).T
        reader.read_into("b/x", destination)
        np.testing.assert_array_equal(destination, X)

    def test_large_tensors_on_several_threads(self, tmp_path):
        """Tensors of many segments come back whole."""
        array = np.random.default_rng(3).integers(0, 255, 70_000_001, np.uint8)
        write(LocalStorage(), f"{tmp_path}/x", {"a": 1, "x": array})
        with open_bundle(LocalStorage(), tmp_path / "x") as reader:
            np.testing.assert_array_equal(reader.read("x"), array)
            reader.verify()

    def test_from_several_threads(self, tmp_path):
        """One reader serves many threads."""
        write(LocalStorage(), f"{tmp_path}/x", {f"t{n}": np.full(100, n) for n in range(500)}, shards=5)
        reader = open_bundle(LocalStorage(), tmp_path / "x")
        wrong = []

        def read():
            wrong.extend(n for n in range(500) if not (reader.read(f"t{n}") == n).all())

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestMap:
    @pytest.fixture
    def path(self, tmp_path):
        write(
            LocalStorage(),
            f"{tmp_path}/x",
            {"a": np.int8(1), "x": X, "e": np.zeros((0, 2)), "s": STRINGS, "half": ((2,), {"0,1": np.zeros(1)})},
        )
        return tmp_path / "x"

    def test_is_the_tensor(self, path):
        """A map has the values, and cannot be written to."""
        with open_bundle(LocalStorage(), path) as reader:
            for key in ("a", "x", "e"):
                mapped = reader.map(key)
                assert same(mapped, reader.read(key))
                assert mapped.flags.aligned
                assert not mapped.flags.writeable

    def test_outlives_reader_and_file(self, path):
        """The values stay when the reader is closed and the checkpoint is removed."""
        with open_bundle(LocalStorage(), path) as reader:
            mapped = reader.map("x")
        for file in path.parent.iterdir():
            file.unlink()
        np.testing.assert_array_equal(mapped, X)

    def test_is_verified(self, path):
        """Damaged bytes are not handed out."""
        data = path.parent / "x.data-00000-of-00001"
        damaged = bytearray(data.read_bytes())
        damaged[65] ^= 1
        data.write_bytes(damaged)
        with open_bundle(LocalStorage(), path) as reader, pytest.raises(CorruptCheckpointError, match="checksum"):
            reader.map("x")

    @pytest.mark.parametrize("key", ["s", "half"])
    def test_of_what_is_not_laid_out_as_in_memory(self, path, key):
        """Strings and slices have to be read."""
        with (
            open_bundle(LocalStorage(), path) as reader,
            pytest.raises(UnsupportedError, match=r"use read\(\)") as caught,
        ):
            reader.map(key)
        assert caught.value.key == key

    def test_of_unaligned_tensors(self, tmp_path):
        """What TensorFlow wrote is often not aligned, and has to be read."""
        write(LocalStorage(), f"{tmp_path}/x", {"a": np.int8(1), "x": X}, alignment=1)
        with open_bundle(LocalStorage(), tmp_path / "x") as reader, pytest.raises(UnsupportedError, match="aligned"):
            reader.map("x")

    def test_of_other_storage(self, reader):
        """Only local files can be mapped."""
        with pytest.raises(UnsupportedError, match="local file"):
            reader.map("b/x")


class TestFiles:
    @pytest.fixture
    def files(self, tmp_path):
        write(LocalStorage(), f"{tmp_path}/x", {f"t{n}": np.full(20, n) for n in range(6)}, shards=3)
        return tmp_path

    def test_shard_paths(self, files):
        """The data files are known from the index."""
        with open_bundle(LocalStorage(), files / "x") as reader:
            assert sorted(map(str, files.glob("*.data*"))) == reader.shard_paths

    def test_hold(self, files):
        """What is held can be read when it was removed, or replaced by another checkpoint."""
        with open_bundle(LocalStorage(), files / "x") as reader:
            reader.hold()
            for file in files.iterdir():
                file.unlink()
            write(LocalStorage(), f"{files}/x", {f"t{n}": np.zeros(20) for n in range(6)}, shards=3)
            reader.verify()
            assert all((reader.read(f"t{n}") == n).all() for n in range(6))

    def test_a_missing_shard(self, files):
        """Its tensors are not found; the others are read all the same."""
        (files / "x.data-00001-of-00003").unlink()
        with open_bundle(LocalStorage(), files / "x") as reader:
            assert (reader.read("t0") == 0).all()
            for call in (reader.read, reader.check, reader.map):
                with pytest.raises(CheckpointNotFoundError, match=r"data file .* missing") as caught:
                    call("t1")
                assert caught.value.key == "t1"
                assert caught.value.file == f"{files}/x.data-00001-of-00003"
            for call in (reader.hold, reader.check_files, reader.verify):
                with pytest.raises(CheckpointNotFoundError, match="00001-of-00003"):
                    call()

    def test_a_missing_shard_without_tensors(self, tmp_path):
        """A checkpoint is complete with all of its files only."""
        write(LocalStorage(), f"{tmp_path}/x", {"a": 1}, shards=2)
        (tmp_path / "x.data-00001-of-00002").unlink()
        with open_bundle(LocalStorage(), tmp_path / "x") as reader, pytest.raises(CheckpointNotFoundError):
            reader.check_files()

    def test_check_files_reads_no_data(self, files):
        """Lengths are compared, not bytes."""
        path = files / "x.data-00000-of-00003"
        path.write_bytes(bytes(path.stat().st_size))
        with open_bundle(LocalStorage(), files / "x") as reader:
            reader.check_files()
            with pytest.raises(CorruptCheckpointError, match="checksum"):
                reader.verify()

    def test_close(self, files):
        """A closed reader has let go of its files and says so."""
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        with open_bundle(LocalStorage(), files / "x") as reader:
            reader.verify()
        reader.close()
        if before:
            assert len(os.listdir("/proc/self/fd")) == before
        with pytest.raises(ValueError, match="closed"):
            reader.read("t0")


def big_endian(storage, prefix, tensors):
    """The bundle that a big-endian machine would have written."""
    write(storage, prefix, tensors, alignment=1)
    path = f"{prefix}.data-00000-of-00001"
    data = bytearray(content(storage, path))
    table = rows(storage, prefix)
    for key, array in tensors.items():
        entry = BundleEntry.FromString(table[key.encode()])
        if DType.of(array).is_bytes:
            crc = crc32c(b"".join(len(text).to_bytes(4, "big") for text in array.ravel()))
            check = mask(crc).to_bytes(4, "big")
            start = entry.offset + entry.size - sum(map(len, array.ravel())) - 4
            data[start : start + 4] = check
            crc = crc32c(bytes(data[start : entry.offset + entry.size]), crc)
        else:
            width = array.itemsize // 2 if array.dtype.kind == "c" else array.itemsize
            stored = np.frombuffer(array.tobytes(), f"V{width}")
            swapped = b"".join(bytes(number)[::-1] for number in stored)
            data[entry.offset : entry.offset + entry.size] = swapped
            crc = crc32c(swapped)
        entry.crc32c = mask(crc)
        table[key.encode()] = entry.SerializeToString()
    put(storage, path, bytes(data))
    put_rows(storage, prefix, table)
    edit(storage, prefix, "", lambda header: setattr(header, "endianness", BIG_ENDIAN))


@pytest.mark.skipif(sys.byteorder == "big", reason="these would be this machine's own files")
class TestBigEndian:
    TENSORS = {str(dtype): example(dtype, (3, 4)) for dtype in EVERY_DTYPE if dtype.name != "variant"} | {
        "scalar": np.float32(1.5) + np.zeros((), np.float32),
        "long": np.arange(500_000.0).reshape(500, -1),
    }

    @pytest.fixture(scope="class")
    def prefix(self, tmp_path_factory):
        """Written once: it takes longer than all that reads it."""
        path = tmp_path_factory.mktemp("big_endian") / "x"
        big_endian(LocalStorage(), str(path), self.TENSORS)
        return path

    @pytest.fixture
    def reader(self, prefix):
        return open_bundle(LocalStorage(), prefix)

    @pytest.mark.parametrize("key", TENSORS)
    def test_every_type(self, reader, key):
        """Files of big-endian machines give the same values, also in parts and in place."""
        array = self.TENSORS[key]
        assert same(reader.read(key), array)
        box = TensorSlice(((1, 1),) + ((0, -1),) * (array.ndim - 1)) if array.ndim else TensorSlice(())
        assert same(reader.read(key, box), array[box.resolve(array.shape)] if array.ndim else array)
        fetch, destination = Fetch(reader), np.empty_like(array)
        fetch.add(key, destination)
        fetch.verify()
        fetch.deliver()
        assert same(destination, array)

    def test_checks(self, reader):
        """Checksums are those of the bytes in the file."""
        reader.verify()

    def test_tensorflow_agrees(self, reader):
        """The files made here are what TensorFlow takes for those of a big-endian machine."""
        tf = pytest.importorskip("tensorflow")
        theirs = tf.train.load_checkpoint(reader.prefix)
        for key in ("float32", "int64", "complex128", "string", "uint8", "bfloat16"):
            assert same(np.asarray(theirs.get_tensor(key), self.TENSORS[key].dtype), self.TENSORS[key])

    def test_cannot_be_mapped(self, reader):
        """Bytes would have to be swapped first."""
        with pytest.raises(UnsupportedError, match="byte order"):
            reader.map("float32")

    def test_variants_are_refused(self):
        """TensorFlow does not define them."""
        storage = MemoryStorage()
        big_endian(storage, "x", {"v": np.array([b"a"], object)})
        edit(storage, "x", "v", lambda entry: setattr(entry, "dtype", 21))
        with pytest.raises(UnsupportedError, match="variants") as caught:
            open_bundle(storage, "x").read("v")
        assert caught.value.key == "v"


class TestVersions:
    @pytest.mark.parametrize(
        "change",
        [lambda version: setattr(version, "min_consumer", 2), lambda version: version.bad_consumers.extend([3, 1])],
    )
    def test_files_for_other_readers(self, change):
        """A file that says it needs a newer reader is believed."""
        storage = MemoryStorage()
        write(storage, "x", {"a": 1})
        edit(storage, "x", "", lambda header: change(header.version))
        with pytest.raises(UnsupportedError, match="must not read") as caught:
            open_bundle(storage, "x")
        assert caught.value.file == "x.index"

    @pytest.mark.parametrize(
        "change",
        [
            lambda header: header.ClearField("version"),
            lambda header: setattr(header.version, "producer", 99),
            lambda header: header.version.bad_consumers.append(2),
            lambda header: setattr(header.version, "min_consumer", 1),
        ],
    )
    def test_files_for_all_readers(self, change):
        """A file without a version, or of a newer writer, is read."""
        storage = MemoryStorage()
        write(storage, "x", {"a": 1})
        edit(storage, "x", "", change)
        assert open_bundle(storage, "x").read("a") == 1


class TestOtherWriters:
    def test_compressed_blocks(self):
        """An index may be compressed with Snappy."""
        cramjam = pytest.importorskip("cramjam")
        storage = MemoryStorage()
        write(storage, "x", {f"layer/{n:02}": n for n in range(100)})
        block = tables.contents([tables.entry(0, key, value) for key, value in rows(storage, "x").items()])
        index = tables.table(block, limits=[b"m"], compress=lambda data: bytes(cramjam.snappy.compress_raw(data)))
        assert len(index) < len(content(storage, "x.index"))
        put(storage, "x.index", index)
        reader = open_bundle(storage, "x")
        reader.verify()
        assert [int(reader.read(f"layer/{n:02}")) for n in range(100)] == list(range(100))

    def test_gaps_and_any_order(self):
        """Tensors may lie anywhere in the data file."""
        storage = MemoryStorage()
        write(storage, "x", {"a": np.int32(5), "b": np.int32(6)}, alignment=1000)
        data = content(storage, "x.data-00000-of-00001")
        put(storage, "x.data-00000-of-00001", data[1000:] + b"junk" * 10 + data[:4])
        edit(storage, "x", "a", lambda entry: setattr(entry, "offset", len(data[1000:]) + 40))
        edit(storage, "x", "b", lambda entry: setattr(entry, "offset", 0))
        reader = open_bundle(storage, "x")
        reader.verify()
        assert (reader.read("a"), reader.read("b")) == (5, 6)

    def test_keys_that_are_not_text(self):
        """A key that is not UTF-8 cannot be listed; the others can be read."""
        storage = MemoryStorage()
        write(storage, "x", {"a": 1})
        table = rows(storage, "x")
        put_rows(storage, "x", {**table, b"\xff": table[b"a"]})
        reader = open_bundle(storage, "x")
        assert reader.read("a") == 1
        with pytest.raises(CorruptCheckpointError, match="not UTF-8"):
            reader.keys()

    def test_resources_can_be_listed_but_not_read(self):
        """A type without values does not hide the others."""
        storage = MemoryStorage()
        write(storage, "x", {"a": 1, "r": 2})
        edit(storage, "x", "r", lambda entry: setattr(entry, "dtype", 20))
        reader = open_bundle(storage, "x")
        assert reader.keys() == ["a", "r"]
        with pytest.raises(UnsupportedError, match="resource") as caught:
            reader.read("r")
        assert caught.value.key == "r"


def test_entries_are_decoded_once(monkeypatch):
    """Looking at a tensor, then reading it, costs one decoding."""
    reader = bundle({"a": 1})
    decoded = []
    monkeypatch.setattr("milepost.bundle.index.decode", lambda row: decoded.append(1) or entries.decode(row))
    reader.spec("a")
    reader.read("a")
    reader.extent("a")
    assert len(decoded) == 1


def test_a_key_is_looked_up_while_another_thread_releases_the_reader(monkeypatch):
    reader = bundle({f"k{number:03}": number for number in range(100)})
    for number in range(100):
        reader.entry(f"k{number:03}")
    index = reader._index
    get = index._table.get

    def forgetful(key):
        """Looks for a key after `release` has had everything forgotten."""
        index.forget()
        index.forget_blocks()
        return get(key)

    monkeypatch.setattr(index._table, "get", forgetful)
    assert "k0505" not in reader
    assert "k050" in reader


def test_errors_are_ours(reader):
    """Reading what is not there is a `MilepostError`, whatever it also is."""
    with pytest.raises(MilepostError):
        reader.read("nothing")


@pytest.mark.parametrize("for_good", [True, False])
def test_a_reader_that_has_let_go_of_its_files_gives_no_values_of_another_checkpoint(tmp_path, for_good):
    prefix = str(tmp_path / "ckpt")
    write(LocalStorage(), prefix, {"a": np.zeros(2)})
    with open_bundle(LocalStorage(), prefix) as reader:
        reader.release(for_good=for_good)
        write(LocalStorage(), prefix, {"a": np.ones(2)})
        with pytest.raises(CheckpointNotFoundError, match="another one has replaced it"):
            reader.read("a")


@pytest.mark.parametrize("for_good", [True, False])
def test_a_reader_opens_its_files_again_if_they_are_there_still(tmp_path, for_good):
    prefix = str(tmp_path / "ckpt")
    write(LocalStorage(), prefix, {"a": np.zeros(2)})
    with open_bundle(LocalStorage(), prefix) as reader:
        reader.release(for_good=for_good)
        assert reader.read("a").tolist() == [0, 0]


def test_an_entry_of_pieces_does_not_have_all_others_decoded_again(monkeypatch):
    cut = {f"c{number}": ((2,), {"0,1": np.zeros(1), "1,1": np.ones(1)}) for number in range(80)}
    storage, decoded = MemoryStorage(), []
    write(storage, "x", {**cut, "whole": 1})
    monkeypatch.setattr(index_module, "decode_all", lambda *rows: decoded.append(1) or columns.decode_all(*rows))
    reader = open_bundle(storage, "x")
    for key in cut:
        assert len(reader.entry(key).slices) == 2
    assert len(decoded) == 1

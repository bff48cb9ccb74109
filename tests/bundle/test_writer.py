import sys
import threading
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle import BundleWriter, data_path, open_bundle
from milepost.bundle.format.entry import decode
from milepost.errors import MilepostError, MismatchError, UnsupportedError
from milepost.storage import LocalStorage, MemoryStorage
from milepost.tensor import DType, TensorSlice
from tests.bundle.bundles import EVERY_DTYPE, bundle, commit, content, example, rows, same, write


class Recorder:
    """A file that remembers what was written."""

    path = "recorded"

    def __init__(self):
        self.writes = []
        self.lock = threading.Lock()

    def write(self, offset, buffers):
        with self.lock:
            self.writes.append((offset, [bytes(memoryview(buffer).cast("B")) for buffer in buffers]))

    def data(self):
        data = bytearray()
        for offset, buffers in sorted(self.writes):
            assert offset == len(data), "a hole, or bytes written twice"
            data += b"".join(buffers)
        return bytes(data)


def strided(array):
    """The same values, each second one of a larger array."""
    larger = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    larger[..., ::2] = array
    return larger[..., ::2]


class TestAdd:
    @pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
    def test_every_type_round_trips(self, dtype):
        """What is read is what was added, scalars and empty arrays too."""
        storage, writer = MemoryStorage(), BundleWriter()
        tensors = {str(shape): example(dtype, shape) for shape in [(), (0,), (3, 0), (2, 3)]}
        for key, array in tensors.items():
            writer.add(key, array, dtype)
        commit(writer, storage, "x")
        with open_bundle(storage, "x") as reader:
            reader.verify()
            for key, array in tensors.items():
                assert reader.spec(key).dtype is dtype
                assert same(reader.read(key), array)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (b"a\0", np.array(b"a\0", object)),
            ("é", np.array("é".encode(), object)),
            (["a", b"b\0"], np.array([b"a", b"b\0"], object)),
            (2.5, np.float64(2.5)),
            (7, np.int64(7)),
            (True, np.bool_(True)),
            ([1, 2], np.array([1, 2])),
            (np.float32(3), np.float32(3)),
            (np.ma.array([1, 2]), np.array([1, 2])),
            (np.array([1, 2], ">i4"), np.array([1, 2], np.int32)),
            (np.array([1 + 2j], ">c16"), np.array([1 + 2j])),
        ],
    )
    def test_other_values_are_arrays_too(self, value, expected):
        """Numbers, strings and lists are taken as NumPy would, but for strings, which keep their zeros."""
        assert same(bundle({"x": value}).read("x"), np.asarray(expected))

    @pytest.mark.parametrize("size", [6, 200_000])
    @pytest.mark.parametrize(
        "change",
        [
            lambda a: a.T,
            lambda a: a[::-1],
            lambda a: a[:, ::2],
            lambda a: np.asfortranarray(a),
            lambda a: a.astype(a.dtype.newbyteorder()),
            lambda a: a.astype(a.dtype.newbyteorder())[:, 1:],
            lambda a: np.broadcast_to(a[:1], a.shape),
        ],
    )
    def test_memory_may_be_laid_out_in_any_way(self, size, change):
        """Files hold elements in row-major order, whatever the array."""
        array = change(np.arange(3 * size, dtype=np.float64).reshape(3, size))
        reader = bundle({"before": 1, "x": array, "after": 2})
        reader.verify()
        assert same(reader.read("x"), np.ascontiguousarray(array, array.dtype.newbyteorder("=")))

    def test_types_without_buffers(self):
        """Arrays that do not lend their memory to Python, such as those of bfloat16, are written as well."""
        array = np.arange(100_000).astype(ml_dtypes.bfloat16)
        assert same(bundle({"x": array, "y": strided(array)}).read("y"), array)

    def test_arrays_that_cannot_be_written_to(self):
        """A read-only array will do."""
        array = np.arange(100_000)
        array.flags.writeable = False
        assert same(bundle({"x": array}).read("x"), array)

    def test_the_same_key_twice(self):
        """Two tensors cannot have one name."""
        writer = BundleWriter()
        writer.add("x", np.zeros(2))
        with pytest.raises(UnsupportedError, match="two tensors") as caught:
            writer.add("x", np.zeros(2))
        assert caught.value.key == "x"

    @pytest.mark.parametrize("key", ["", "\0", "\0x", "\ud800"])
    def test_impossible_keys(self, key):
        """A key must be told apart from the header and from slices, and be text."""
        with pytest.raises(UnsupportedError, match="key"):
            BundleWriter().add(key, np.zeros(1))

    @pytest.mark.parametrize("array", [np.zeros(1, "V0"), np.zeros(1, [("a", object)])])
    def test_types_that_files_cannot_hold(self, array):
        """A type that files cannot hold is refused at once, with its key."""
        with pytest.raises(UnsupportedError, match="cannot hold elements") as caught:
            BundleWriter().add("x", array)
        assert caught.value.key == "x"

    def test_another_type_than_that_of_the_array(self):
        """Nothing is cast."""
        with pytest.raises(MismatchError) as caught:
            BundleWriter().add("x", np.zeros(1, np.float32), DType.of("float64"))
        assert caught.value.key == "x"

    def test_objects_that_are_no_strings(self):
        """They are found when written, and named."""
        writer = BundleWriter()
        writer.add("x", np.array([b"a", 1], object))
        with pytest.raises(UnsupportedError, match="int at position 1") as caught:
            writer.write_shard(0, Recorder())
        assert caught.value.key == "x"


class TestAddSlice:
    def test_of_another_shape_than_its_box(self):
        """A piece must fill its box."""
        with pytest.raises(MismatchError, match="another shape") as caught:
            BundleWriter().add_slice("x", (4, 4), TensorSlice.parse("0,2:-"), np.zeros((2, 3)))
        assert caught.value.key == "x"

    @pytest.mark.parametrize(
        "box", [TensorSlice.parse("3,2:-"), TensorSlice.parse("-"), TensorSlice(((2, 0), (0, -1)))]
    )
    def test_with_an_impossible_box(self, box):
        """A box must lie inside the tensor and have elements."""
        with pytest.raises(MismatchError) as caught:
            BundleWriter().add_slice("x", (4, 4), box, np.zeros((2, 4)))
        assert caught.value.key == "x"

    @pytest.mark.parametrize(
        ("shape", "array"), [((5,), np.zeros(1)), ((4,), np.zeros(1, np.float32)), ((4, 1), np.zeros((1, 1)))]
    )
    def test_of_another_tensor(self, shape, array):
        """All pieces of a tensor have its type and shape."""
        writer = BundleWriter()
        writer.add_slice("x", (4,), TensorSlice.parse("0,1"), np.zeros(1))
        box = TensorSlice(((1, 1), (0, -1))[: len(shape)])
        with pytest.raises(MismatchError, match="different tensors"):
            writer.add_slice("x", shape, box, array)

    def test_the_same_twice(self):
        """A piece is stored once."""
        writer = BundleWriter()
        writer.add_slice("x", (4,), TensorSlice.parse("0,1"), np.zeros(1))
        with pytest.raises(UnsupportedError):
            writer.add_slice("x", (4,), TensorSlice.parse("0,1"), np.zeros(1))

    @pytest.mark.parametrize("first", ["piece", "whole"])
    def test_beside_the_whole_tensor(self, first):
        """A key has a tensor or pieces of one, not both."""
        writer = BundleWriter()
        steps = [
            lambda: writer.add_slice("x", (4,), TensorSlice.parse("0,1"), np.zeros(1)),
            lambda: writer.add("x", np.zeros(4)),
        ]
        steps = steps if first == "piece" else steps[::-1]
        steps[0]()
        with pytest.raises(UnsupportedError, match="two tensors"):
            steps[1]()

    def test_that_is_everything(self):
        """A slice that covers the tensor is the tensor."""
        reader = bundle({"x": ((3,), {"0,3": np.arange(3)})})
        assert reader.entry("x").slices == ()
        assert reader.entry("x").size == 24


class TestFiles:
    @pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
    def test_tensors_are_aligned(self, alignment):
        """Every tensor begins at a multiple of the alignment; every byte of the file is written, once."""
        writer, file = BundleWriter(alignment=alignment), Recorder()
        sizes = [1, 0, 63, 64, 65, 100_000, 3, 300_001, 5]
        for number, size in enumerate(sizes):
            writer.add(f"t{number}", np.full(size, number + 1, np.uint8))
        writer.write_shard(0, file)
        data = file.data()
        position = 0
        for number, size in enumerate(sizes):
            position += -position % alignment
            assert data[position : position + size] == bytes([number + 1]) * size
            position += size
        assert len(data) == position

    def test_small_tensors_are_written_together(self):
        """A thousand small tensors take one call to the operating system."""
        writer, file = BundleWriter(), Recorder()
        for number in range(1000):
            writer.add(f"t{number}", np.arange(8))
        writer.write_shard(0, file)
        assert len(file.writes) == 1

    def test_large_tensors_are_not_copied(self):
        """Writing takes memory for small tensors only."""

        class Sink:
            def write(self, offset, buffers):
                pass

        arrays = [np.zeros(40_000_000, np.uint8), np.zeros((4000, 5000), np.float32).T, np.zeros(10**7, ">i4")]
        writer = BundleWriter()
        for number, array in enumerate(arrays):
            writer.add(f"t{number}", array)
        tracemalloc.start()
        try:
            writer.write_shard(0, Sink())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20

    def test_nothing_to_write(self):
        """A checkpoint without tensors is one."""
        reader = bundle({}, shards=2)
        reader.verify()
        assert reader.keys() == []

    def test_arrays_are_let_go(self):
        """What was written is not kept alive."""
        writer, array = BundleWriter(), np.zeros(10)
        before = sys.getrefcount(array)
        writer.add("x", array)
        assert sys.getrefcount(array) > before
        writer.write_shard(0, Recorder())
        assert sys.getrefcount(array) == before

    def test_bytes_written(self):
        """Progress is counted in bytes, gaps included."""
        writer = BundleWriter()
        writer.add("a", np.zeros(1, np.uint8))
        writer.add("b", np.zeros(100_000, np.uint8))
        assert writer.bytes_written == 0
        writer.write_shard(0, Recorder())
        assert writer.bytes_written == 100_064

    def test_a_failing_disk(self):
        """The error of the storage comes out, of whatever thread it was."""

        class Full:
            def write(self, offset, buffers):
                if offset > 1 << 20:
                    raise MilepostError("disk full")

        writer = BundleWriter()
        writer.add("x", np.zeros(50_000_000, np.uint8))
        with pytest.raises(MilepostError, match="disk full"):
            writer.write_shard(0, Full())

    def test_shards_may_be_written_at_once(self):
        """Each shard by a thread of its own."""
        storage, writer = MemoryStorage(), BundleWriter(shards=4)
        for number in range(400):
            writer.add(f"t{number}", np.full(number, number), shard=number % 4)

        def write_shard(shard):
            with storage.create(data_path("x", shard, 4)) as file:
                writer.write_shard(shard, file)

        threads = [threading.Thread(target=write_shard, args=(shard,)) for shard in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with storage.create("x.index") as file:
            file.write(0, [writer.index()])
        reader = open_bundle(storage, "x")
        reader.verify()
        assert all((reader.read(f"t{number}") == number).all() for number in range(400))

    def test_the_same_bytes_every_time(self, tmp_path):
        """The same tensors give the same files, however many threads write them."""
        tensors = {f"t{n}": np.random.default_rng(n).random(n * 100_000) for n in range(10)}
        for name in ("a", "b"):
            write(LocalStorage(), f"{tmp_path}/{name}", tensors)
        for end in (".index", ".data-00000-of-00001"):
            assert (tmp_path / f"a{end}").read_bytes() == (tmp_path / f"b{end}").read_bytes()


class TestMisuse:
    def test_an_index_before_its_data(self):
        """An index needs the checksums of the data."""
        writer = BundleWriter(shards=2)
        writer.write_shard(1, Recorder())
        with pytest.raises(ValueError, match=r"shards \[0\]"):
            writer.index()

    def test_a_shard_twice(self):
        """What was written is gone."""
        writer = BundleWriter()
        writer.write_shard(0, Recorder())
        for again in (lambda: writer.write_shard(0, Recorder()), lambda: writer.add("x", 1)):
            with pytest.raises(ValueError, match="before"):
                again()

    @pytest.mark.parametrize("options", [{"shards": 0}, {"alignment": 0}])
    def test_impossible_bundles(self, options):
        """Shards and alignment count from one."""
        with pytest.raises(ValueError, match="there is no bundle"):
            BundleWriter(**options)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 100))
def test_entries_do_not_overlap(sizes, alignment):
    """Each byte of a data file belongs to one tensor at most."""
    storage = MemoryStorage()
    write(storage, "x", {f"t{n}": np.zeros(size, np.int16) for n, size in enumerate(sizes)}, alignment=alignment)
    found = [decode(row) for key, row in rows(storage, "x").items() if key]
    end = 0
    for entry in sorted(found, key=lambda entry: (entry.offset, entry.size)):
        assert entry.offset >= end
        end = entry.offset + entry.size
    assert end <= len(content(storage, "x.data-00000-of-00001"))


def test_strings_are_written_in_parts_of_bounded_size():
    writer, file = BundleWriter(), Recorder()
    writer.add("s", np.array([bytes(60_000)] * 80, object))
    writer.write_shard(0, file)
    sizes = [sum(map(len, buffers)) for _, buffers in file.writes]
    assert sum(sizes) > 4_800_000
    assert max(sizes) < 2_200_000

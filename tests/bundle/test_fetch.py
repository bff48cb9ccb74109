import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.bundle import BundleWriter, Fetch, open_bundle
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, KeyNotFoundError, MismatchError
from milepost.storage import LocalStorage, MemoryStorage
from milepost.tensor import DType, TensorSlice
from tests.bundle.bundles import EVERY_DTYPE, bundle, commit, content, example, put, same, write

MEBI = 1 << 20


def filled(array):
    """A destination whose values are not those that will come."""
    destination = np.empty_like(array, order="C")
    destination.reshape(-1).view(np.uint8)[...] = 0xA5
    return destination


def mixed():
    """Tensors of every kind: small, large, empty, strings, slices."""
    rng = np.random.default_rng(5)
    x = rng.random((300, 700))
    return {
        **{f"small/{n}": rng.random(n).astype(np.float32) for n in range(40)},
        "scalar": np.array(3.5),
        "large": rng.integers(0, 255, (3, 9 * MEBI), np.uint8),
        "middle": rng.random(20_000),
        "far": rng.random(3),
        "strings": np.array([[b"a", b""], [b"c\0", b"d" * 300]], object),
        "sliced": ((300, 700), {"0,100:-": x[:100], "100,200:0,400": x[100:, :400], "100,200:400,300": x[100:, 400:]}),
    }, x


class TestDelivery:
    @pytest.mark.parametrize("staging", [0, 1000, 64 * MEBI])
    @pytest.mark.parametrize("alignment", [1, 64, 8192])
    def test_everything_arrives(self, tmp_path, staging, alignment):
        """Fresh arrays and destinations get the saved values, however much memory there is to stage them."""
        tensors, x = mixed()
        write(LocalStorage(), f"{tmp_path}/x", tensors, shards=2, alignment=alignment)
        expected = {key: x if isinstance(value, tuple) else value for key, value in tensors.items()}
        with open_bundle(LocalStorage(), tmp_path / "x") as reader:
            fetch = Fetch(reader, staging=staging)
            wanted = []
            for key, array in reversed(expected.items()):
                for destination in (None, np.empty_like(array) if array.dtype.hasobject else filled(array)):
                    assert fetch.add(key, destination) == len(wanted)
                    wanted.append((array, destination))
            fetch.verify()
            delivered = fetch.deliver()
        assert len(delivered) == len(wanted)
        for got, (array, destination) in zip(delivered, wanted, strict=True):
            assert same(got, array)
            assert got.flags.writeable
            assert destination is None or got is destination

    @pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
    def test_every_type(self, dtype):
        """Each type can be fetched, fresh or in place, whole or in part."""
        storage, writer, array = MemoryStorage(), BundleWriter(), example(dtype)
        writer.add("x", array, dtype)
        commit(writer, storage, "x")
        fetch = Fetch(open_bundle(storage, "x"))
        box = TensorSlice.parse("1,1:0,2")
        fetch.add("x", None)
        fetch.add("x", np.empty_like(array))
        fetch.add("x", None, box)
        fetch.add("x", np.empty_like(array[1:, :2]), box)
        fetch.verify()
        whole, in_place, part, part_in_place = fetch.deliver()
        assert same(whole, array)
        assert same(in_place, array)
        assert same(part, np.ascontiguousarray(array[1:, :2]))
        assert same(part_in_place, np.ascontiguousarray(array[1:, :2]))

    def test_fresh_arrays_share_no_memory(self):
        """Keeping one tensor does not keep its neighbours in memory."""
        fetch = Fetch(bundle({"a": np.arange(10), "b": np.arange(10)}))
        for key in ("a", "b", "a"):
            fetch.add(key, None)
        fetch.verify()
        delivered = fetch.deliver()
        assert all(array.base is None for array in delivered)

    def test_nothing(self):
        """A fetch of nothing delivers nothing."""
        fetch = Fetch(bundle({"a": 1}))
        fetch.verify()
        assert fetch.deliver() == []

    def test_neighbours_are_read_together(self):
        """Small tensors that lie near each other take one read; far ones do not make it longer."""
        storage = MemoryStorage()
        write(storage, "x", {**{f"a{n}": np.arange(8) for n in range(100)}, "gap": np.zeros(10**6), "z": np.arange(8)})
        reader = open_bundle(storage, "x")
        fetch = Fetch(reader)
        for key in ["z", *(f"a{n}" for n in range(0, 100, 2))]:
            fetch.add(key, None)
        file, entry = reader.extent("z")
        lengths = []
        original = file.read
        file.read = lambda offset, length: (lengths.append(length), original(offset, length))[1]
        fetch.verify()
        assert sorted(lengths) == [64, 99 * 64]
        assert entry.size == 64

    @given(st.data())
    def test_any_selection(self, data):
        """Whatever is asked for, in whatever order, twice or not at all."""
        tensors = {f"t{n}": np.arange(n * 37, dtype=np.int16) for n in range(12)}
        reader = bundle(
            tensors, shards=data.draw(st.integers(1, 3)), alignment=data.draw(st.sampled_from([1, 64, 5000]))
        )
        fetch = Fetch(reader, staging=data.draw(st.integers(0, 5000)))
        keys = data.draw(st.lists(st.sampled_from(list(tensors))))
        for key in keys:
            fetch.add(key, data.draw(st.sampled_from([None, filled(tensors[key])])))
        fetch.verify()
        for key, array in zip(keys, fetch.deliver(), strict=True):
            assert same(array, tensors[key])


class TestAllOrNothing:
    @pytest.mark.parametrize("staging", [0, 64 * MEBI])
    @pytest.mark.parametrize("victim", ["small/7", "scalar", "large", "middle", "strings", "sliced"])
    def test_damage_changes_no_destination(self, tmp_path, victim, staging):
        """One wrong bit anywhere, and every destination stays as it was."""
        tensors, x = mixed()
        write(LocalStorage(), f"{tmp_path}/x", tensors)
        path = tmp_path / "x.data-00000-of-00001"
        data = bytearray(path.read_bytes())
        with open_bundle(LocalStorage(), tmp_path / "x") as reader:
            entry = reader.entry(victim)
            if entry.slices:
                position = data.index(np.ascontiguousarray(x[100:, 400:]).tobytes())
            else:
                position = entry.offset + entry.size - 1
            data[position] ^= 4
            path.write_bytes(data)
            fetch = Fetch(reader, staging=staging)
            destinations = {}
            for key, value in tensors.items():
                array = x if isinstance(value, tuple) else value
                destination = np.empty_like(array) if array.dtype.hasobject else filled(array)
                destinations[key] = (destination, destination.copy())
                fetch.add(key, destination)
            with pytest.raises(CorruptCheckpointError, match="checksum") as caught:
                fetch.verify()
        assert caught.value.key == victim
        assert caught.value.file == str(path)
        assert all(same(destination, before) for destination, before in destinations.values())
        with pytest.raises(ValueError, match="verify"):
            fetch.deliver()

    def test_a_missing_shard_changes_no_destination(self):
        """The file that is missing is named, and the tensor in it."""
        storage = MemoryStorage()
        write(storage, "x", {"a": np.arange(3), "b": np.arange(3)}, shards=2)
        storage.remove("x.data-00001-of-00002")
        fetch, destination = Fetch(open_bundle(storage, "x")), np.zeros(3, int)
        fetch.add("a", destination)
        fetch.add("b", None)
        with pytest.raises(CheckpointNotFoundError) as caught:
            fetch.verify()
        assert (caught.value.key, caught.value.file) == ("b", "x.data-00001-of-00002")
        assert not destination.any()

    def test_an_unknown_key_changes_no_destination(self):
        """Keys are looked up before anything is read."""
        fetch, destination = Fetch(bundle({"a": np.arange(3)})), np.zeros(3, int)
        fetch.add("a", destination)
        fetch.add("b", None)
        with pytest.raises(KeyNotFoundError):
            fetch.verify()
        assert not destination.any()

    @pytest.mark.parametrize("staging", [0, MEBI])
    def test_a_file_that_changes_after_all(self, staging):
        """What is read twice is checked twice."""
        storage = MemoryStorage()
        write(storage, "x", {"small": np.arange(3), "large": np.arange(50_000)})
        path = "x.data-00000-of-00001"
        fetch = Fetch(open_bundle(storage, "x"), staging=staging)
        fetch.add("small", np.zeros(3, int))
        fetch.add("large", np.zeros(50_000, int))
        fetch.verify()
        data = bytes(len(content(storage, path)))
        file = storage._files[path] if hasattr(storage, "_files") else None
        if file is None:
            pytest.skip("needs to change a file under an open reader")
        file.data[:] = data
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            fetch.deliver()


class TestDestinations:
    @pytest.mark.parametrize(
        "destination",
        [
            np.zeros((2, 3), np.int32),
            np.zeros((3, 2), np.int64),
            np.zeros(6, np.int64),
            np.zeros((3, 2), np.int64).T,
            np.zeros((2, 6), np.int64)[:, ::2],
            np.zeros((2, 3), ">i8"),
            np.broadcast_to(np.int64(0), (2, 3)),
        ],
    )
    def test_that_do_not_fit(self, destination):
        """A wrong destination is refused, never written beside."""
        fetch = Fetch(bundle({"x": np.arange(6).reshape(2, 3)}))
        fetch.add("x", destination)
        with pytest.raises(MismatchError, match="cannot be read into") as caught:
            fetch.verify()
        assert caught.value.key == "x"
        assert not destination.any()

    def test_that_do_not_fit_a_box(self):
        """A box goes into an array of its own shape."""
        fetch = Fetch(bundle({"x": np.arange(6).reshape(2, 3)}))
        fetch.add("x", np.zeros((2, 3), int), TensorSlice.parse("1,1:-"))
        with pytest.raises(MismatchError, match=r"shape \(1, 3\)"):
            fetch.verify()


class TestMemory:
    @pytest.mark.parametrize("kind", ["many", "large", "sliced", "box"])
    def test_in_place_takes_little_more_than_staging(self, tmp_path, kind):
        """A restore into existing arrays needs no second copy of them."""
        rows = 64
        x = np.zeros((rows, MEBI), np.uint8)
        tensors = {
            "many": {f"t{n}": np.zeros(32 << 10, np.uint8) for n in range(2 * rows * 16)},
            "large": {"x": x},
            "sliced": {
                "x": (
                    (rows, MEBI),
                    {f"{n},16:0,{MEBI // 2}": x[n : n + 16, : MEBI // 2] for n in range(0, rows, 16)}
                    | {f"-:{MEBI // 2},{MEBI // 2}": x[:, MEBI // 2 :]},
                )
            },
            "box": {"x": x},
        }[kind]
        write(LocalStorage(), f"{tmp_path}/x", tensors)
        box = TensorSlice(((0, -1), (5, MEBI - 9))) if kind == "box" else None
        destinations = {
            key: np.empty_like(x[:, 5:-4] if box else x if isinstance(value, tuple) else value, order="C")
            for key, value in tensors.items()
        }
        with open_bundle(LocalStorage(), tmp_path / "x") as reader:
            reader.keys()
            for key in tensors:
                reader.spec(key)
            tracemalloc.start()
            try:
                fetch = Fetch(reader, staging=4 * MEBI)
                for key, destination in destinations.items():
                    fetch.add(key, destination, box)
                fetch.verify()
                fetch.deliver()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert peak < 16 * MEBI
        assert all(not destination.any() for destination in destinations.values())


def test_other_kinds_share_the_budget():
    """Slices are staged while there is room, and read twice when there is none."""
    x = np.arange(1000.0)
    reader = bundle({"x": ((1000,), {"0,500": x[:500], "500,500": x[500:]})})
    for staging in (0, 8000):
        fetch, destination = Fetch(reader, staging=staging), np.zeros(1000)
        fetch.add("x", destination)
        fetch.verify()
        assert not destination.any()
        fetch.deliver()
        np.testing.assert_array_equal(destination, x)


def test_variants_in_place():
    """Opaque elements go into arrays of objects."""
    storage, writer, array = MemoryStorage(), BundleWriter(), np.array([b"a", b"bb"], object)
    writer.add("v", array, DType.of("variant"))
    commit(writer, storage, "x")
    put(storage, "unrelated", b"")
    fetch, destination = Fetch(open_bundle(storage, "x")), np.array([None, None], object)
    fetch.add("v", destination)
    fetch.verify()
    assert destination.tolist() == [None, None]
    fetch.deliver()
    assert destination.tolist() == [b"a", b"bb"]


def test_many_small_tensors_are_not_all_kept_between_verifying_and_delivering():
    storage = MemoryStorage()
    source = {f"{number:04}": np.full(8192, number, np.float32) for number in range(4800)}  # 150 MiB
    writer = BundleWriter()
    for key, array in source.items():
        writer.add(key, array)
    commit(writer, storage, "x")
    with open_bundle(storage, "x") as reader:
        fetch = Fetch(reader)
        destinations = {key: np.zeros(8192, np.float32) for key in source}
        for key, destination in destinations.items():
            fetch.add(key, destination)
        tracemalloc.start()
        try:
            fetch.verify()
            held = tracemalloc.get_traced_memory()[0]
            fetch.deliver()
        finally:
            tracemalloc.stop()
    assert held < 72 * MEBI
    assert all(np.array_equal(destinations[key], source[key]) for key in source)


def test_arrays_that_are_made_are_the_only_copies_after_they_are_verified():
    arrays = {f"k{number}": np.ones(1 << 14, np.float32) for number in range(64)}
    with bundle(arrays) as reader:
        fetch = Fetch(reader)
        for key in arrays:
            fetch.add(key, None)
        tracemalloc.start()
        try:
            fetch.verify()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 1.5 * (4 << 20)
        assert len(fetch.deliver()) == 64

import shutil
from pathlib import Path

import numpy as np
import pytest

from milepost.bundle import open_bundle
from milepost.bundle.fetch import Fetch
from milepost.bundle.format.messages import SavedTensorSlices
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    KeyNotFoundError,
    MilepostError,
    MismatchError,
    UnsupportedError,
)
from milepost.storage import LocalStorage, MemoryStorage
from milepost.table import TableWriter
from milepost.tensor import TensorSlice
from tests.bundle.bundles import content, put
from tests.data.tf115.generate import partitioned, values

DATA = Path(__file__).parents[1] / "data" / "tf115"
V1 = ["v1/ckpt", "v1_sharded/ckpt"]
EVERY = [*V1, "v2/ckpt", "v2_sharded/ckpt"]
VALUES = {**values(), **{name: value for name, (value, _, _) in partitioned().items()}}


@pytest.fixture(params=EVERY)
def old(request):
    with open_bundle(LocalStorage(), DATA / request.param) as reader:
        yield reader


@pytest.fixture
def v1():
    with open_bundle(LocalStorage(), DATA / "v1/ckpt") as reader:
        yield reader


def plain(array):
    """A quantised array as one of integers."""
    return array.view(array.dtype[0]) if array.dtype.names else array


class TestTensorFlow1:
    @pytest.mark.parametrize("key", VALUES)
    def test_every_value_is_read(self, old, key):
        """Both versions, sharded or not, hold what TensorFlow 1.15 was given."""
        got = plain(old.read(key))
        assert got.dtype == VALUES[key].dtype
        np.testing.assert_array_equal(got, VALUES[key], strict=True)

    def test_every_key_is_listed(self, old):
        """The keys are the names of the variables, without those of their slices."""
        assert old.keys() == sorted(VALUES)

    def test_specs_say_what_read_returns(self, old):
        """Types and shapes are known without reading."""
        for key in old.keys():  # noqa: SIM118 - a reader is no mapping
            array = old.read(key)
            assert (old.spec(key).dtype.numpy, old.spec(key).shape) == (array.dtype, array.shape)

    def test_everything_verifies(self, old):
        """No check finds fault with what TensorFlow wrote."""
        old.hold()
        old.check_files()
        old.verify()

    def test_fetch_reads_everything(self, old):
        """A restore reads old checkpoints as it does new ones."""
        fetch = Fetch(old)
        keys = old.keys()
        destinations = [np.empty_like(old.read(key)) if number % 2 else None for number, key in enumerate(keys)]
        for key, destination in zip(keys, destinations, strict=True):
            fetch.add(key, destination)
        fetch.verify()
        for key, array, destination in zip(keys, fetch.deliver(), destinations, strict=True):
            assert destination is None or array is destination
            np.testing.assert_array_equal(plain(array), VALUES[key], strict=True)

    def test_any_box_of_a_partitioned_variable(self, old):
        """A box is put together from the slices that TensorFlow cut, wherever it cut them."""
        value = VALUES["columns"]
        for start in range(10):
            for length in range(1, 11 - start):
                box = TensorSlice(((0, -1), (start, length)))
                np.testing.assert_array_equal(old.read("columns", box), value[:, start : start + length])

    def test_a_model_directory_of_an_estimator(self):
        """What an Estimator left behind is read as TensorFlow itself reads it."""
        expected = np.load(DATA / "estimator.npz")
        with open_bundle(LocalStorage(), DATA / "estimator" / "model.ckpt-4") as reader:
            reader.verify()
            assert reader.keys() == sorted(expected.files)
            for key in expected.files:
                np.testing.assert_array_equal(reader.read(key), expected[key], strict=True)


class TestVersion1:
    def test_the_pattern_of_a_state_file_names_a_sharded_checkpoint(self):
        """TensorFlow 1 writes ``P-?????-of-NNNNN`` into its state files."""
        with open_bundle(LocalStorage(), DATA / "v1_sharded/ckpt-?????-of-00002") as reader:
            assert [Path(path).name for path in reader.shard_paths] == ["ckpt-00000-of-00002", "ckpt-00001-of-00002"]
            assert "rows" in reader

    def test_a_missing_shard_is_not_found(self, tmp_path):
        """A sharded checkpoint with a hole in it is none."""
        shutil.copy(DATA / "v1_sharded/ckpt-00000-of-00002", tmp_path)
        with pytest.raises(CheckpointNotFoundError):
            open_bundle(LocalStorage(), tmp_path / "ckpt")

    def test_slices_are_known(self, v1):
        """An entry tells in which pieces a variable was saved; one in a single piece has none."""
        assert sorted(map(str, v1.entry("rows").slices)) == ["0,3:0,4", "3,2:0,4", "5,2:0,4"]
        assert v1.entry("scalar").slices == ()

    def test_cannot_be_mapped(self, v1):
        """Values are encoded, so there is nothing to map."""
        with pytest.raises(UnsupportedError, match=r"use read\(\)"):
            v1.map("scalar")

    def test_an_unknown_key_names_those_like_it(self, v1):
        """A misspelt key is answered with the right one."""
        with pytest.raises(KeyNotFoundError, match="numbers/float32") as caught:
            v1.read("numbers/flaot32")
        assert caught.value.key == "numbers/flaot32"

    def test_a_box_outside_the_tensor(self, v1):
        """A box must lie inside the tensor."""
        with pytest.raises(MismatchError):
            v1.read("rows", TensorSlice.parse("6,2:-"))

    def test_stays_readable_without_its_file(self, tmp_path):
        """An open checkpoint survives the removal of its file."""
        shutil.copy(DATA / "v1/ckpt", tmp_path)
        with open_bundle(LocalStorage(), tmp_path / "ckpt") as reader:
            (tmp_path / "ckpt").unlink()
            np.testing.assert_array_equal(reader.read("rows"), VALUES["rows"])

    def test_a_file_of_another_kind(self):
        """A file that is no table is named, together with what was perhaps meant."""
        storage = MemoryStorage()
        put(storage, "weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(1000))
        with pytest.raises(CorruptCheckpointError, match=r"weights\.h5\.index") as caught:
            open_bundle(storage, "weights.h5")
        assert caught.value.file == "weights.h5"

    def test_every_flipped_byte_is_noticed(self):
        """No byte of a V1 checkpoint can change without an error that names the file."""
        original = content(LocalStorage(), str(DATA / "v1/ckpt"))
        storage = MemoryStorage()
        # The footer has zeros after its handles that nobody reads.
        read_by_nobody = range(len(original) - 42, len(original) - 8)
        for position in set(range(len(original))) - set(read_by_nobody):
            damaged = bytearray(original)
            damaged[position] ^= 0x41
            put(storage, "ckpt", bytes(damaged))
            with pytest.raises(MilepostError) as caught, open_bundle(storage, "ckpt") as reader:
                reader.verify()
            assert "ckpt" in str(caught.value.file)

    def test_truncation_is_noticed(self):
        """A V1 checkpoint that is cut short anywhere is refused."""
        original = content(LocalStorage(), str(DATA / "v1/ckpt"))
        storage = MemoryStorage()
        for length in range(0, len(original), 7):
            put(storage, "ckpt", original[:length])
            with pytest.raises(CorruptCheckpointError):
                open_bundle(storage, "ckpt")


class TestHostileHeaders:
    def test_a_tensor_that_the_header_names_twice_is_refused(self):
        header = SavedTensorSlices()
        for _ in range(2):
            tensor = header.meta.tensor.add(name=b"k", type=1)
            tensor.slice.add()
        table = TableWriter()
        table.add([(b"", header.SerializeToString())])
        storage = MemoryStorage()
        put(storage, "x", table.finish())
        with pytest.raises(CorruptCheckpointError, match="names a tensor twice") as caught:
            open_bundle(storage, "x")
        assert caught.value.key == "k"

    @pytest.mark.parametrize(("kind", "length"), [(3, 4), (1, 5)], ids=["type", "shape"])
    def test_files_that_disagree_on_a_tensor_are_refused(self, kind, length):
        storage = MemoryStorage()
        for number, (of_file, size) in enumerate([(1, 4), (kind, length)]):
            header = SavedTensorSlices()
            tensor = header.meta.tensor.add(name=b"k", type=of_file)
            tensor.shape.dim.add(size=size)
            tensor.slice.add().extent.add(start=2 * number, length=2)
            table = TableWriter()
            table.add([(b"", header.SerializeToString())])
            put(storage, f"x-0000{number}-of-00002", table.finish())
        with open_bundle(storage, "x") as reader, pytest.raises(CorruptCheckpointError, match="disagree"):
            reader.spec("k")

"""``reader[name][2:5]``: parts of tensors, in every format, without the rest where the format allows it."""

import os

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

import milepost
from milepost import Checkpoint, MismatchError, UnsupportedError
from milepost.storage import LocalStorage


def written(directory, array, form):
    path = Checkpoint(a=array).write(directory / "own")
    if form == "own":
        return path, "a"
    target = directory / f"a.{form}"
    milepost.convert(path, target, only="a")
    return target, "a"


@pytest.mark.parametrize("form", ["own", "npz", "safetensors", "pt"])
@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=st.data())
def test_a_part_is_what_numpy_selects(tmp_path_factory, form, data):
    shape = data.draw(of_numpy.array_shapes(min_dims=1, max_dims=3, max_side=6))
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index = data.draw(of_numpy.basic_indices(shape, allow_newaxis=False))
    path, name = written(tmp_path_factory.mktemp("parts"), array, form)
    with milepost.load_checkpoint(path) as reader:
        part = reader[name][index]
    np.testing.assert_array_equal(part, array[index])
    assert np.asarray(part).dtype == array.dtype


@pytest.mark.parametrize("form", ["own", "npz", "safetensors", "pt"])
def test_a_saved_tensor_is_like_an_array(tmp_path, form):
    array = np.arange(12.0).reshape(4, 3)
    path, name = written(tmp_path, array, form)
    with milepost.load_checkpoint(path) as reader:
        tensor = reader[name]
        assert (tensor.shape, tensor.dtype, tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (
            (4, 3),
            np.float64,
            2,
            12,
            96,
            4,
        )
        np.testing.assert_array_equal(np.asarray(tensor), array)
        np.testing.assert_array_equal(list(tensor), array)
        assert tensor[1, 2] == array[1, 2]
        assert isinstance(tensor[1, 2], np.float64)


class Counted(LocalStorage):
    """Counts the bytes that are read."""

    count = 0

    def open(self, path):
        file = super().open(path)
        read_into = file.read_into

        def counted(offset, buffer):
            self.count += memoryview(buffer).nbytes
            read_into(offset, buffer)

        file.read_into = counted
        return file


@pytest.mark.parametrize("form", ["own", "safetensors"])
def test_only_the_part_is_read(tmp_path, form):
    path, name = written(tmp_path, np.zeros((1000, 1000)), form)
    storage = Counted()
    with milepost.load_checkpoint(path, milepost.CheckpointOptions(storage=storage)) as reader:
        tensor = reader[name]
        tensor[:1]  # verifies the checksum, if there is one
        before = storage.count
        tensor[10:20]
        assert storage.count - before < 200_000


def test_a_damaged_tensor_is_noticed_by_its_first_part(tmp_path):
    path = Checkpoint(a=np.zeros(100_000)).write(tmp_path / "own")
    with open(f"{path}.data-00000-of-00001", "r+b") as file:
        file.seek(-40_000, os.SEEK_END)
        file.write(b"\1")
    with milepost.load_checkpoint(path) as reader, pytest.raises(milepost.CorruptCheckpointError) as caught:
        reader["a"][:2]
    assert caught.value.key == "a/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.mark.parametrize("index", [4, -5, (0, 3), (0, 0, 0)])
def test_an_index_outside_is_an_error_of_ours(tmp_path, index):
    path = Checkpoint(a=np.zeros((4, 3))).write(tmp_path / "own")
    with milepost.load_checkpoint(path) as reader, pytest.raises(MismatchError) as caught:
        reader["a"][index]
    assert caught.value.key == "a/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.mark.parametrize("index", [[0, 1], None, "a", True, np.array([True, False, True, False]), (..., ...)])
def test_other_indices_are_refused_with_a_remedy(tmp_path, index):
    path = Checkpoint(a=np.zeros((4, 3))).write(tmp_path / "own")
    with milepost.load_checkpoint(path) as reader, pytest.raises(UnsupportedError, match="get_tensor"):
        reader["a"][index]


def test_text_and_scalars(tmp_path):
    path = Checkpoint(t=np.array([b"a", b"b", b"c"], object), s=np.float32(2)).write(tmp_path / "own")
    with milepost.load_checkpoint(path) as reader:
        assert reader["t"][1:].tolist() == [b"b", b"c"]
        assert reader["t"][0] == b"a"
        assert reader["s"][()] == 2
        assert reader["s"][...] == 2


def test_tensors_of_safetensors_are_mapped(tmp_path):
    array = np.arange(12.0).reshape(4, 3)
    path, _ = written(tmp_path, array, "safetensors")
    loaded = milepost.load(path, mapped=True)["a"]
    assert not loaded.flags.writeable
    assert not loaded.flags.owndata
    np.testing.assert_array_equal(loaded, array)


def test_metadata_of_safetensors_is_read_and_written(tmp_path):
    path = Checkpoint(a=np.zeros(3), b=np.zeros(4)).write(tmp_path / "own")
    milepost.convert(path, tmp_path / "a.safetensors", metadata={"license": "mit", "step": "3"})
    expected = {"format": "pt", "license": "mit", "step": "3"}
    assert milepost.load_checkpoint(tmp_path / "a.safetensors").metadata() == expected
    milepost.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", metadata={"step": "4"})
    assert milepost.load_checkpoint(tmp_path / "b.safetensors").metadata() == expected | {"step": "4"}
    milepost.convert(tmp_path / "b.safetensors", tmp_path / "c.safetensors", max_shard_size=30)
    metadata = milepost.load_checkpoint(tmp_path / "c.safetensors.index.json").metadata()
    assert metadata == expected | {"step": "4", "total_size": 56}


def test_the_library_safetensors_reads_the_metadata_and_its_own_is_read(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"a": np.zeros(3)}, tmp_path / "a.safetensors", metadata={"made": "by safetensors"})
    assert milepost.load_checkpoint(tmp_path / "a.safetensors").metadata() == {"made": "by safetensors"}
    milepost.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", metadata={"and": "by milepost"})
    with safetensors.safe_open(tmp_path / "b.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt", "made": "by safetensors", "and": "by milepost"}


@pytest.mark.parametrize(
    ("ending", "metadata"), [("pt", {"a": "b"}), ("safetensors", {"a": 3}), ("safetensors", "text")]
)
def test_metadata_that_no_file_holds_is_refused(tmp_path, ending, metadata):
    path = Checkpoint(a=np.zeros(3)).write(tmp_path / "own")
    with pytest.raises(UnsupportedError) as caught:
        milepost.convert(path, tmp_path / f"a.{ending}", metadata=metadata)
    assert caught.value.key == "metadata"
    assert not (tmp_path / f"a.{ending}").exists()

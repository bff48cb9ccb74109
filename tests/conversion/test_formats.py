"""What `milepost.convert` writes is read by the library whose format it is: every element type, shape and name."""

import json
import os
import zipfile

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost.conversion.formats import WRITERS
from milepost.tensor import DType
from milepost.tools.values.statistics import is_numeric

SHAPES = {
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.float32(2.5),
    "matrix": np.arange(6, dtype=np.float64).reshape(2, 3),
    "deep/er/é b": np.arange(4, dtype=np.int16),
    "large": np.arange(1 << 16, dtype=np.int64),
}
TYPES = {
    f"of/{dtype.name}": np.array([[1, 0], [1, 1]]).astype(dtype.numpy) for dtype in DType.all() if is_numeric(dtype)
}
VALUES = SHAPES | TYPES


def nested(values):
    tree = {}
    for name, value in values.items():
        *above, last = name.split("/")
        level = tree
        for step in above:
            level = level.setdefault(step, {})
        level[last] = value
    return tree


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return milepost.save(tmp_path_factory.mktemp("source") / "ckpt", nested(VALUES))


def same(found, name):
    expected = np.asarray(VALUES[name])
    assert np.asarray(found).shape == expected.shape, name
    assert np.asarray(found).astype(expected.dtype).tobytes() == expected.tobytes(), name


def left_out(done):
    return {key.partition("/.ATTRIBUTES")[0] for key in done.left_out}


def check_all(done, found):
    """Every value is there as it was, or named as left out."""
    assert set(done.tensors) | left_out(done) == set(VALUES)
    assert set(found) == set(done.tensors)
    for name, value in found.items():
        same(value, name)


def flat(tree, above=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}/")
        else:
            yield above + name, value


@pytest.mark.parametrize("mapped", [False, True])
def test_pytorch(source, tmp_path, mapped):
    torch = pytest.importorskip("torch")
    done = milepost.convert(source, tmp_path / "a.pt", partial=True)
    found = torch.load(tmp_path / "a.pt", weights_only=True, mmap=mapped)
    assert all(f"torch.{name[3:]}" == str(found[name].dtype) for name in TYPES if name in found)
    assert {"of/bfloat16", "of/float8_e4m3fn", "of/uint16", "of/complex128", "of/bool", "empty", "scalar"} <= set(found)
    as_bytes = {name: each.contiguous().flatten().view(torch.uint8).numpy() for name, each in found.items()}
    assert set(found) | left_out(done) == set(VALUES)
    for name, value in found.items():
        assert tuple(value.shape) == np.shape(VALUES[name])
        assert as_bytes[name].tobytes() == np.asarray(VALUES[name]).tobytes(), name


def test_safetensors(source, tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    kept = [name for name in VALUES if "float8" not in name]
    done = milepost.convert(source, tmp_path / "a.safetensors", partial=True, only=kept)
    found = library.load_file(tmp_path / "a.safetensors")
    assert set(found) | left_out(done) == set(kept)
    for name, value in found.items():
        same(value, name)


def test_npz(source, tmp_path):
    done = milepost.convert(source, tmp_path / "a.npz", partial=True)
    with np.load(tmp_path / "a.npz") as found:
        check_all(done, dict(found))


def test_orbax(source, tmp_path):
    orbax = pytest.importorskip("orbax.checkpoint")
    done = milepost.convert(source, tmp_path / "orbax", format="orbax", partial=True)
    check_all(done, dict(flat(orbax.PyTreeCheckpointer().restore(tmp_path / "orbax"))))
    assert left_out(done) == {"empty", "of/uint2", "of/uint4"} & set(VALUES)
    target = {name: np.zeros(np.shape(VALUES[name]), VALUES[name].dtype) for name in done.tensors}
    with orbax.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "orbax", nested(target))
    np.testing.assert_array_equal(restored["large"], VALUES["large"])


def test_tensorflow_1(source, tmp_path):
    tf = pytest.importorskip("tensorflow")
    kept = [name for name in VALUES if hasattr(tf.dtypes, name.removeprefix("of/")) or name in SHAPES]
    done = milepost.convert(source, tmp_path / "model.ckpt", format="tensorflow1", only=kept)
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt"))
    assert set(reader.get_variable_to_shape_map()) == set(done.tensors) == set(kept)
    for name in kept:
        same(reader.get_tensor(name), name)
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("deep/matrix", shape=(2, 3), dtype=tf.float64)
        v1.train.Saver({"matrix": variable}).restore(session, str(tmp_path / "model.ckpt"))
        same(session.run(variable), "matrix")


def test_numbers_are_converted_while_they_are_written(tmp_path):
    values = np.linspace(0, 1, 1 << 16).reshape(256, 256)
    path = milepost.save(tmp_path / "ckpt", {"vars": {"a": values, "b": np.float64(1 / 3)}})
    for form in WRITERS:
        if form == "keras":
            pytest.importorskip("h5py")
        if form == "orbax":
            pytest.importorskip("orbax.checkpoint")
        done = milepost.convert(path, tmp_path / form, format=form, dtype="float32")
        assert set(done.rounded) == {"vars/a", "vars/b"}
        found = dict(flat(milepost.load(tmp_path / form)))
        np.testing.assert_array_equal(found["vars/a"], values.astype(np.float32))
        assert found["vars/b"].dtype == np.float32


def test_text_goes_to_tensorflow_1_only(tmp_path):
    path = milepost.Checkpoint(name=milepost.Variable("text"), v=milepost.Variable(1.0)).write(tmp_path / "ckpt")
    milepost.convert(path, tmp_path / "new", format="tensorflow1")
    assert milepost.load_variable(tmp_path / "new", "name") == b"text"
    for form in set(WRITERS) - {"tensorflow1", "keras"}:
        with pytest.raises(milepost.UnsupportedError, match=r"cannot hold all of the values(?s:.*)name/.*: text"):
            milepost.convert(path, tmp_path / form, format=form)
        assert not (tmp_path / form).exists()


def test_keras(source, tmp_path):
    h5py = pytest.importorskip("h5py")
    done = milepost.convert(source, tmp_path / "a.weights.h5", partial=True, rename=[("^", "layers/a/vars/")])
    with h5py.File(tmp_path / "a.weights.h5") as file:
        assert file["layers/a/vars/scalar"][()] == 2.5
        assert file["layers/a/vars/empty"].shape == (0, 3)
        np.testing.assert_array_equal(file["layers/a/vars/large"][()], VALUES["large"])
    assert "of/bool" in left_out(done)  # its last level but one is no "vars"


def test_keras_types(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = milepost.save(tmp_path / "ckpt", {"vars": nested(TYPES)["of"]})
    done = milepost.convert(path, tmp_path / "a.weights.h5", partial=True)
    with h5py.File(tmp_path / "a.weights.h5") as file:
        for name in done.tensors:
            value, expected = file[name], TYPES[f"of/{name[5:]}"]
            if name == "vars/bfloat16":
                assert value.attrs["dtype"] == "bfloat16"
                assert np.array(value, dtype=ml_dtypes.bfloat16).tobytes() == expected.tobytes()
            else:
                assert value.dtype == expected.dtype
                assert value[()].tobytes() == expected.tobytes()
    assert {"vars/bool", "vars/float16", "vars/complex64", "vars/bfloat16"} <= set(done.tensors)
    back = milepost.load(tmp_path / "a.weights.h5")["vars"]
    for name in done.tensors:
        assert back[name[5:]].dtype == TYPES[f"of/{name[5:]}"].dtype


@pytest.mark.parametrize("form", [*WRITERS, "checkpoint"])
def test_there_and_back(tmp_path, form):
    """milepost reads what it writes, and writes it again as a checkpoint that is the same."""
    pytest.importorskip({"keras": "h5py", "orbax": "orbax.checkpoint"}.get(form, "numpy"))
    values = {"layers": {"a": {"vars": {"0": np.arange(6.0).reshape(2, 3), "1": np.float32(3)}}}}
    source = milepost.save(tmp_path / "source", values)
    milepost.convert(source, tmp_path / "there", format=form)
    milepost.convert(tmp_path / "there", tmp_path / "back")
    found = dict(flat(milepost.load(tmp_path / "back")))
    assert set(found) == {"layers/a/vars/0", "layers/a/vars/1"}
    np.testing.assert_array_equal(found["layers/a/vars/0"], np.arange(6.0).reshape(2, 3))
    assert found["layers/a/vars/1"] == np.float32(3)
    milepost.convert(tmp_path / "there", tmp_path / "again", format=form)
    assert dict(flat(milepost.load(tmp_path / "again"))).keys() == found.keys()


def test_a_checkpoint_of_milepost_keeps_lists_and_plain_values(tmp_path):
    state = {"epoch": 3, "name": "run", "sizes": (1, 2), "layers": [np.ones(2), np.zeros((0, 2))]}
    path = milepost.save(tmp_path / "a", state)
    milepost.convert(path, tmp_path / "b")
    found = milepost.load(tmp_path / "b")
    assert (found["epoch"], found["name"], found["sizes"]) == (3, "run", (1, 2))
    np.testing.assert_array_equal(found["layers"][0], np.ones(2))
    assert found["layers"][1].shape == (0, 2)
    live = milepost.Checkpoint(layers=[])
    live.restore(tmp_path / "b", only="layers").expect_partial()
    assert len(live.layers) == 2


HOSTILE = [
    "../up",
    "/root",
    "a\\b",
    "nul\0",
    ".",
    "..",
    "a//b",
    "_METADATA",
    "__metadata__",
    "\udcff",
    "x" * 300,
    "a.b",
    "ü",
]


@pytest.mark.parametrize("form", [*WRITERS])
def test_hostile_names_are_held_or_named(tmp_path, form):
    """No file is written anywhere else, and no name is lost in silence."""
    pytest.importorskip({"keras": "h5py", "orbax": "orbax.checkpoint"}.get(form, "numpy"))
    pickle = pytest.importorskip("torch")
    state = {f"vars/{name}" if form == "keras" else name: pickle.ones(2) * place for place, name in enumerate(HOSTILE)}
    pickle.save(state | {"vars/0" if form == "keras" else "plain": pickle.ones(2)}, tmp_path / "source.pt")
    inside = tmp_path / "inside"
    inside.mkdir()
    done = milepost.convert(tmp_path / "source.pt", inside / "there", format=form, partial=True)
    assert sorted(os.listdir(tmp_path)) == ["inside", "source.pt"]
    assert all(name.startswith("there") for name in os.listdir(inside))
    found = dict(flat(milepost.load(inside / "there")))
    assert len(found) == len(done.tensors)
    assert len(done.tensors) + len(done.left_out) == len(HOSTILE) + 1
    for name, key in done.tensors.items():
        np.testing.assert_array_equal(found[name], state.get(key, np.ones(2)))


def test_a_tensor_below_another_is_refused_where_levels_are_directories(tmp_path):
    np.savez(tmp_path / "source.npz", **{"vars/a": np.ones(2), "vars/a/b": np.ones(2)})
    milepost.convert(tmp_path / "source.npz", tmp_path / "a.safetensors")
    with pytest.raises(milepost.UnsupportedError, match="below another"):
        milepost.convert(tmp_path / "source.npz", tmp_path / "orbax", format="orbax")


class TestSeveralFiles:
    @pytest.fixture
    def source(self, tmp_path):
        return milepost.save(tmp_path / "ckpt", {f"v{each}": np.full(100, each, np.float32) for each in range(5)})

    def test_pytorch(self, source, tmp_path):
        torch = pytest.importorskip("torch")
        target = tmp_path / "model" / "pytorch_model.bin"
        target.parent.mkdir()
        done = milepost.convert(source, target, max_shard_size=800)
        assert [os.path.basename(each) for each in done.files] == [
            "pytorch_model-00001-of-00003.bin",
            "pytorch_model-00002-of-00003.bin",
            "pytorch_model-00003-of-00003.bin",
            "pytorch_model.bin.index.json",
        ]
        index = json.loads((target.parent / "pytorch_model.bin.index.json").read_text())
        assert index["metadata"] == {"total_size": 2000}
        assert index["weight_map"]["v4"] == "pytorch_model-00003-of-00003.bin"
        assert torch.load(target.parent / index["weight_map"]["v4"], weights_only=True)["v4"].tolist() == [4] * 100
        assert sorted(milepost.load(target.parent)) == [f"v{each}" for each in range(5)]

    def test_tensorflow_1(self, source, tmp_path):
        done = milepost.convert(source, tmp_path / "tf1", format="tensorflow1", max_shard_size=800)
        assert len(done.files) == 4
        milepost.load_checkpoint(tmp_path / "tf1").verify()
        assert milepost.load_variable(tmp_path / "tf1", "v3").tolist() == [3] * 100


def test_elements_of_pytorch_begin_at_multiples_of_64(source, tmp_path):
    milepost.convert(source, tmp_path / "a.pt", partial=True)
    data = (tmp_path / "a.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        assert archive.testzip() is None
        for record in archive.infolist():
            lengths = data[record.header_offset + 26 : record.header_offset + 30]
            start = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
            assert (record.header_offset + start) % 64 == 0

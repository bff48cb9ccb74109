"""Files that `flax.serialization.to_bytes` and `flax.training.checkpoints` write, and files that only begin like them."""

import struct
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import milepost
import milepost.adapters
from milepost import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.jax import flax_files
from tests.counting import lines_run

serialization = pytest.importorskip("flax.serialization")
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
optax = pytest.importorskip("optax")
train_state = pytest.importorskip("flax.training.train_state")
restore = pytest.importorskip("milepost.jax").restore

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32"]
TYPES += ["float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "int4"]


def array(dtype, shape=(2, 3)):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def written(path, tree):
    path.write_bytes(serialization.to_bytes(tree))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.msgpack"


class TestReading:
    @pytest.mark.parametrize("dtype", TYPES)
    def test_every_element_type_is_read_bit_for_bit(self, path, dtype):
        expected = array(dtype)
        found = milepost.load_variable(written(path, {"w": expected}), "w")
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()

    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (7,), (2, 3, 4)])
    def test_every_shape(self, path, shape):
        found = milepost.load_variable(written(path, {"w": array("float32", shape)}), "w")
        assert found.shape == shape

    def test_what_flax_calls_other_values(self, path):
        tree = {"step": 7, "low": -(2**40), "high": 2**63, "rate": 0.1, "name": "run ü", "on": True, "none": None}
        tree |= {"bytes": b"\0\1", "complex": 1 + 2j, "scalar": np.float32(0.5), "list": [1, 2.5]}
        reader = milepost.load_checkpoint(written(path, tree))
        assert reader.get_tensor("step") == 7
        assert reader.get_tensor("low") == -(2**40)
        assert reader.get_tensor("rate") == 0.1
        assert reader.get_tensor("name").decode() == "run ü"
        assert reader.get_tensor("on").dtype == bool
        assert reader.get_tensor("bytes") == b"\0\1"
        assert reader.get_tensor("complex") == 1 + 2j
        assert reader.get_tensor("scalar").dtype == np.float32
        assert reader.get_tensor("list/1") == 2.5

    def test_arrays_in_chunks_are_one(self, path, monkeypatch):
        monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 16)
        tree = {"large": array("float32", (3, 5)), "small": array("float32", (2,))}
        assert b"__msgpack_chunked_array__" in written(path, tree).read_bytes()
        reader = milepost.load_checkpoint(path)
        assert sorted(reader.get_variable_to_shape_map()) == ["large", "small"]
        assert np.array_equal(reader.get_tensor("large"), tree["large"])
        reader.verify()

    @pytest.mark.parametrize("shape", [(), (3,), (100,), (300, 300)])
    def test_a_file_that_is_one_array(self, path, shape):
        expected = array("float32", shape)
        found = milepost.load(written(path, expected))
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)

    def test_a_file_that_is_one_scalar(self, path):
        assert milepost.load(written(path, np.float32(0.5))) == 0.5

    @pytest.mark.parametrize("name", ["empty.msgpack", "checkpoint_3"])
    def test_a_file_of_nothing(self, path, name):
        other = path.with_name(name)
        other.write_bytes(serialization.to_bytes({}))
        assert milepost.load(other) == {}

    def test_one_array_into_a_tree(self, path):
        found, status = restore(written(path, jnp.ones(3)), jnp.zeros(3))
        status.assert_consumed()
        assert found.tolist() == [1, 1, 1]

    def test_arrays_stay_in_the_file_until_they_are_read(self, path):
        written(path, {"large": np.zeros(4 << 20), "small": np.ones(3)})
        tracemalloc.start()
        assert milepost.load_variable(path, "small").tolist() == [1, 1, 1]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 << 20

    def test_long_maps_and_long_names(self, path):
        tree = {f"layer {number} " + "x" * (number % 300): np.full(1, number) for number in range(70_000)}
        shapes = milepost.load_checkpoint(written(path, tree)).get_variable_to_shape_map()
        assert len(shapes) == 70_000


class TestRestoring:
    def test_parameters_into_a_tree(self, path):
        params = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)}}
        found, status = restore(written(path, params), jax.tree.map(jnp.zeros_like, params))
        status.assert_consumed()
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), found, params))

    def test_a_train_state_as_flax_restores_it(self, path):
        def state(scale):
            params = {"w": jnp.full((2, 2), scale), "layers": [jnp.ones(2) * scale, jnp.ones(3) * scale]}
            return train_state.TrainState.create(apply_fn=None, params=params, tx=optax.adam(0.1))

        trained = state(1.0)
        for _ in range(3):
            trained = trained.apply_gradients(grads=jax.tree.map(jnp.cos, trained.params))
        written(path, trained)
        expected = serialization.from_bytes(state(0.0), path.read_bytes())
        found, status = restore(path, state(0.0))
        status.assert_consumed()
        assert int(found.step) == 3
        same = jax.tree.map(lambda a, b: np.array_equal(a, b), found.params, expected.params)
        assert jax.tree.all(same)
        assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), found.opt_state, expected.opt_state))

    def test_into_variables_of_a_checkpoint(self, path):
        written(path, {"net": {"w": np.arange(3.0)}, "step": 5})
        net, step = milepost.Module(), milepost.Variable(0)
        net.w = milepost.Variable(np.zeros(3))
        milepost.Checkpoint(net=net, step=step).read(path).assert_consumed()
        assert net.w.numpy().tolist() == [0, 1, 2]
        assert int(step) == 5

    def test_another_shape_changes_nothing(self, path):
        written(path, {"a": np.ones(2), "b": np.ones(3)})
        a, b = milepost.Variable(np.zeros(2)), milepost.Variable(np.zeros(2))
        with pytest.raises(milepost.MismatchError, match="b"):
            milepost.Checkpoint(a=a, b=b).read(path)
        assert a.numpy().tolist() == [0, 0]


def ext(kind, data):
    return b"\xc7" + bytes([len(data)]) + bytes([kind]) + data


def packed_array(shape, name, data):
    return b"\x93" + bytes([0x90 + len(shape), *shape, 0xA0 + len(name)]) + name + b"\xc4" + bytes([len(data)]) + data


DAMAGED = {
    "no element bytes": ext(1, b"\x93\x91\x02\xa7float32"),
    "too few element bytes": ext(1, packed_array((2,), b"float32", bytes(4))),
    "too many element bytes": ext(1, packed_array((2,), b"float32", bytes(9))),
    "a shape that is no list": ext(1, b"\x93\x02\xa7float32\xc4\x00"),
    "a negative length": ext(1, b"\x93\x91\xff\xa7float32\xc4\x00"),
    "too many dimensions": ext(1, b"\x93\xdc\x00\x41" + b"\x00" * 65 + b"\xa7float32\xc4\x00"),
    "an array of no parts": ext(1, b"\x90"),
    "a complex number of one part": ext(2, b"\x91\x01"),
    "bytes behind an array": ext(1, packed_array((1,), b"float32", bytes(4)) + b"\0"),
    "a code that is never used": b"\xc1",
    "text that is not UTF-8": b"\xa2\xff\xfe",
    "a long text": b"\xdb\xff\xff\xff\xff",
    "a long map": b"\xdf\xff\xff\xff\xff",
    "a long list": b"\xdd\xff\xff\xff\xff",
    "a long extension": b"\xc9\xff\xff\xff\xff\x01",
    "a list as a key": b"\x81\x90\x01",
    "a key that is there twice": b"\x82\xa1a\x01\xa1a\x02",
    "chunks without a shape": b"\x81\xb9__msgpack_chunked_array__\xc3",
}


class TestFilesOfOthers:
    @pytest.mark.parametrize("what", DAMAGED)
    def test_damage_is_named_with_the_file(self, path, what):
        path.write_bytes(b"\x81\xa1w" + DAMAGED[what])
        with pytest.raises(CorruptCheckpointError) as caught:
            milepost.list_variables(path)
        assert caught.value.file == str(path)
        assert "again" in caught.value.remedy

    def test_a_file_that_is_cut_off_anywhere_is_damaged(self, path):
        whole = written(path, {"w": array("float32"), "x": [1, "text", 1j]}).read_bytes()
        for size in range(3, len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(CorruptCheckpointError):
                milepost.list_variables(path)

    def test_any_byte_may_be_another(self, path):
        whole = written(path, {"w": array("float32", (2,)), "x": [1, "text", 1j]}).read_bytes()
        for position in range(3, len(whole)):
            for value in (0x00, 0x7F, 0x80, 0x93, 0xC1, 0xC7, 0xDF, 0xFF):
                path.write_bytes(whole[:position] + bytes([value]) + whole[position + 1 :])
                try:
                    milepost.load_checkpoint(path).verify()
                except MilepostError:
                    pass  # most bytes break the tree, and some only change a value

    @pytest.mark.parametrize(
        "content",
        [
            b"\x91" * 5000 + b"\xc0",
            b"\xc7\x01\x02" * 5000 + b"\xc0",
            b"\xc7\x01\x01\x93" * 5000 + b"\xc0",
            b"\xdd" + struct.pack(">I", 30_000) + b"\xc0" * 30_000,
        ],
        ids=["levels", "complex numbers in each other", "shapes in each other", "objects"],
    )
    def test_too_much_of_anything_is_refused_soon(self, path, content, monkeypatch):
        monkeypatch.setattr(flax_files, "_MOST", 10_000)
        path.write_bytes(b"\x81\xa1w" + content)

        def read():
            with pytest.raises(UnsupportedError, match="too many objects or levels"):
                milepost.list_variables(path)

        assert lines_run(read) < 3_000_000

    def test_extensions_of_others_are_refused(self, path):
        path.write_bytes(b"\x81\xa1t" + ext(5, b"abc"))
        with pytest.raises(UnsupportedError, match="extension 5") as caught:
            milepost.load_checkpoint(path)
        assert "library that wrote it" in caught.value.remedy

    def test_arrays_of_text_are_refused(self, path):
        path.write_bytes(serialization.msgpack_serialize({"w": np.array(["ab"])}))
        with pytest.raises(UnsupportedError, match="element type"):
            milepost.load_checkpoint(path)

    def test_the_types_are_those_of_ml_dtypes_too(self, path):
        expected = np.array([0.5, -2], ml_dtypes.bfloat16)
        assert milepost.load_variable(written(path, {"w": expected}), "w").tolist() == expected.tolist()

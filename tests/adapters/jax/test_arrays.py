"""Arrays of JAX: what is restored is like what it succeeds in all that compiled functions look at."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

import milepost
from milepost.adapters import adapter_of
from milepost.storage import LocalStorage

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from milepost.adapters.jax.moved import enable_x64
from tests.adapters.jax.restoring import restored

DTYPES = [
    "bool",
    "int2",
    "int4",
    "int8",
    "int16",
    "int32",
    "uint2",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
]


def written(path, **values):
    return milepost.Checkpoint(**values).write(path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_round_trips(path, dtype):
    x = jnp.asarray(np.array([[0, 1, 1], [1, 0, 1]]), dtype)
    got = restored(written(path, x=x), x=jnp.zeros((2, 3), dtype)).x
    assert got.dtype == x.dtype
    assert np.asarray(got).tobytes() == np.asarray(x).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_save_leaves_no_copy_in_an_array(path, dtype):
    x = jnp.ones((2, 3), dtype)
    written(path, x=x)
    assert [each._npy_value for each in (x, *(shard.data for shard in x.addressable_shards))] == [None, None]


def test_an_element_type_that_tensorflow_lacks_is_kept(path):
    got = restored(written(path, x=jnp.full(2, 4, "float8_e8m0fnu")), x=jnp.ones(2, "float8_e8m0fnu")).x
    assert got.dtype == "float8_e8m0fnu"
    assert got.astype("float32").tolist() == [4, 4]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (70_000,)])
def test_shapes_are_kept(path, shape):
    got = restored(written(path, x=jnp.ones(shape)), x=jnp.zeros(shape)).x
    assert got.shape == shape
    assert (np.asarray(got) == 1).all()


def test_the_old_array_stays_as_it_was(path):
    old = jnp.zeros(3)
    assert restored(written(path, x=jnp.ones(3)), x=old).x is not old
    assert old.tolist() == [0, 0, 0]


@pytest.mark.parametrize("like", [lambda: jnp.asarray(1.0), lambda: jnp.broadcast_to(jnp.asarray(2), (3,))])
def test_a_weak_type_is_kept(path, like):
    got = restored(written(path, x=like() + 1), x=like()).x
    assert got.weak_type
    assert got.tolist() == (like() + 1).tolist()


@pytest.mark.parametrize("size", [1, 100_000])
def test_the_weak_type_of_an_abstract_array_is_kept(path, size):
    like = jax.ShapeDtypeStruct((size,), jnp.float32, weak_type=True)
    got = restored(written(path, x=jnp.arange(size, dtype=jnp.float32)), x=like).x
    assert (got.weak_type, got.committed, got[-1]) == (True, False, size - 1)


def test_a_strong_type_is_kept(path):
    assert not restored(written(path, x=jnp.asarray(1.0)), x=jnp.float32(2)).x.weak_type


def test_what_was_committed_stays_so_and_nothing_else(path):
    written(path, free=jnp.ones(3), bound=jnp.ones(3))
    got = restored(path, free=jnp.zeros(3), bound=jax.device_put(jnp.zeros(3), jax.devices()[0]))
    assert (got.free.committed, got.bound.committed) == (False, True)


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_compiled_function_is_not_compiled_again_after_a_restore(path, size):
    traces = []

    @jax.jit
    def step(x, scale):
        traces.append(1)
        return x * scale

    x, scale = jnp.ones(size), jnp.asarray(2.0)
    written(path, x=step(x, scale), scale=scale)
    got = restored(path, x=x, scale=scale)
    step(got.x, got.scale)
    assert len(traces) == 1


def test_a_deleted_array_is_not_saved(path):
    x = jnp.ones(3)
    x.delete()
    with pytest.raises(milepost.UntrackableError, match=r"(?s)deleted.*key: x.*by the function's results"):
        written(path, x=x)


def test_a_deleted_array_is_restored(path):
    x = jnp.zeros(3)
    written(path, x=jnp.ones(3))
    x.delete()
    assert restored(path, x=x).x.tolist() == [1, 1, 1]


def test_an_array_that_is_being_traced_is_refused(path):
    def save(x):
        written(path, x=x)
        return x

    with pytest.raises(milepost.UntrackableError, match=r"(?s)being traced.*key: x.*outside of jit"):
        jax.jit(save)(1.0)


def test_64_bit_arrays_are_not_made_narrower_when_jax_is(path):
    with enable_x64(True):
        x, old = jnp.arange(3) + 2**40, jnp.zeros(3, "int64")
        written(path, x=x)
    got = restored(path, x=old).x
    assert got.dtype == "int64"
    assert np.asarray(got).tolist() == [2**40, 2**40 + 1, 2**40 + 2]


def test_a_64_bit_value_does_not_fit_a_32_bit_array(path):
    with enable_x64(True):
        written(path, x=jnp.zeros(3))
    with pytest.raises(milepost.MismatchError, match=r"(?s)key: x.*float32\[3\].*float64\[3\]"):
        restored(path, x=jnp.ones(3))


def test_one_value_that_does_not_fit_leaves_all_as_they_were(path):
    written(path, a=jnp.ones(2), b=jnp.ones(3), c=np.ones(2))
    fresh = milepost.Checkpoint(a=jnp.zeros(2), b=jnp.zeros(4), c=np.zeros(2))
    a = fresh.a
    with pytest.raises(milepost.MismatchError, match="key: b"):
        fresh.read(path)
    assert fresh.a is a
    assert fresh.c.tolist() == [0, 0]


def test_an_abstract_array_becomes_an_array(path):
    written(path, x=jnp.arange(6.0).reshape(2, 3))
    got = restored(path, x=jax.ShapeDtypeStruct((2, 3), jnp.float32)).x
    assert isinstance(got, jax.Array)
    assert not got.committed
    assert got.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_abstract_array_of_another_shape_is_refused(path):
    written(path, x=jnp.ones(3))
    with pytest.raises(milepost.MismatchError, match="key: x"):
        restored(path, x=jax.ShapeDtypeStruct((4,), jnp.float32))


def test_an_abstract_array_cannot_be_saved(path):
    with pytest.raises(milepost.UntrackableError, match=r"(?s)abstract.*key: x"):
        written(path, x=jax.ShapeDtypeStruct((3,), jnp.float32))


def test_memory_that_others_know_is_not_kept(path):
    from milepost.adapters.jax.arrays import successor

    known = np.zeros(1 << 18, np.uint8)
    start = -known.ctypes.data % 64
    part = known[start : start + (1 << 17)].view(np.float32)
    foreign = np.frombuffer(memoryview(part), np.float32)
    array = successor(jnp.ones(part.shape), foreign)
    part[:] = 7
    assert float(array.max()) == 0


def test_an_array_and_one_of_numpy_have_the_same_file(path):
    written(path, x=jnp.arange(3.0))
    assert restored(path, x=np.zeros(3, np.float32)).x.tolist() == [0, 1, 2]
    written(path, x=np.full(3, 5, np.float32))
    assert restored(path, x=jnp.zeros(3)).x.tolist() == [5, 5, 5]


TWO_DEVICES = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding
import milepost
from milepost.adapters.jax.moved import enable_x64

path = sys.argv[1]
mesh = jax.make_mesh((2,), ("d",))
first, second = jax.devices()
with jax.default_device(second):
    free = jnp.zeros((4, 2))
live = {
    "split": jax.device_put(jnp.zeros((4, 2)), NamedSharding(mesh, P("d"))),
    "columns": jax.device_put(jnp.zeros((4, 2)), NamedSharding(mesh, P(None, "d"))),
    "copied": jax.device_put(jnp.zeros((4, 2)), NamedSharding(mesh, P())),
    "second": jax.device_put(jnp.zeros((4, 2)), second),
    "free": free,
    "abstract": jax.ShapeDtypeStruct((4, 2), jnp.float32, sharding=NamedSharding(mesh, P("d"))),
    "weak": jax.ShapeDtypeStruct((4, 2), jnp.float32, sharding=NamedSharding(mesh, P("d")), weak_type=True),
    "keys": jax.device_put(jax.random.split(jax.random.key(0), 4), NamedSharding(mesh, P("d"))),
}
saved = {name: jnp.arange(8.0).reshape(4, 2) + number for number, name in enumerate(live)}
saved["split"] = jax.device_put(saved["split"], NamedSharding(mesh, P(None, "d")))
saved["keys"] = jax.random.split(jax.random.key(7), 4)
milepost.Checkpoint(state=saved).write(path)
checkpoint = milepost.Checkpoint(state=live)
checkpoint.read(path).assert_consumed()
found = {}
for name, old in live.items():
    new = checkpoint.state[name]
    equal = new == saved[name] if name == "keys" else np.asarray(new) == np.asarray(saved[name])
    committed = getattr(old, "committed", True)
    found[name] = [bool(np.all(equal)), new.sharding == old.sharding, new.committed == committed, getattr(new, "weak_type", False) == (name == "weak")]
print(json.dumps(found))
"""


ABSTRACT = """
import contextlib, json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding
import milepost.jax
from milepost.adapters.jax.moved import enable_x64

path = sys.argv[1]
first, second = jax.devices()
one = NamedSharding(jax.make_mesh((1,), ("x",), devices=[second]), P())
plain = {"float": np.ones((2, 2), np.float32), "wide": np.full(3, 1e300), "narrow": jnp.ones(3, "bfloat16"), "int4": jnp.ones(3, "int4"), "number": np.float32(3)}
plain["large"] = np.ones((300, 300), np.float32)
milepost.jax.save(path, plain)
surroundings = {
    "nothing": contextlib.nullcontext,
    "default device": lambda: jax.default_device(second),
    "mesh": lambda: jax.set_mesh(jax.make_mesh((2,), ("y",), axis_types=(jax.sharding.AxisType.Explicit,))),
    "nothing again": contextlib.nullcontext,
}
if not hasattr(jax, "set_mesh"):  # before JAX 0.7
    del surroundings["mesh"]
shardings = {"none": None, "device": SingleDeviceSharding(second), "mesh": one}
wrong = []
for around, sharding in [("nothing", name) for name in shardings] + [(name, "none") for name in surroundings]:
    with surroundings[around]():
        given = {name: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=shardings[sharding]) for name, each in plain.items()}
        restored, status = milepost.jax.restore(path, given)
        status.assert_consumed()
        for name, new in restored.items():
            with enable_x64(True):
                expected = jax.device_put(np.asarray(plain[name]), shardings[sharding])
            facts = [(each.aval, each.sharding, each.committed, each.weak_type, each.dtype) for each in (new, expected)]
            if facts[0] != facts[1] or not np.array_equal(np.asarray(new), np.asarray(plain[name])):
                wrong.append(f"{name}, {around}, {sharding}: {facts}")
print(json.dumps(wrong))
"""


def test_an_abstract_array_becomes_what_device_put_makes(path):
    assert on_two_devices(ABSTRACT, path) == []


def test_shardings_devices_and_weak_types_are_kept(path):
    found = on_two_devices(TWO_DEVICES, path)
    assert found == {name: [True, True, True, True] for name in found}
    assert len(found) == 8


def on_two_devices(program, path):
    """What a program prints, as JSON, in a process of its own with two devices."""
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestAsynchronousSaves:
    """Nothing is copied of arrays on the CPU, and what the program does with them does not change what is written."""

    @pytest.fixture
    def held_up(self, tmp_path):
        """Options of an asynchronous save that writes nothing before the event is set, and the event."""
        go = threading.Event()

        class Waiting(LocalStorage):
            def create(self, path):
                go.wait(60)
                return super().create(path)

        yield milepost.CheckpointOptions(enable_async=True, storage=Waiting()), go
        go.set()

    def test_an_array_that_is_donated_meanwhile_is_saved_as_it_was(self, tmp_path, held_up):
        options, go = held_up
        array = jnp.arange(1_000_000, dtype=jnp.float32)
        expected = np.array(array)
        checkpoint = milepost.Checkpoint(array=array)
        path = checkpoint.write(str(tmp_path / "ckpt"), options)
        step = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
        for _ in range(3):
            array = step(array)
        array.block_until_ready()
        go.set()
        checkpoint.sync()
        assert np.array_equal(milepost.load_variable(path, "array"), expected)

    def test_an_array_that_is_deleted_meanwhile_is_saved_as_it_was(self, tmp_path, held_up):
        options, go = held_up
        array = jnp.arange(1_000_000, dtype=jnp.float32)
        expected = np.array(array)
        checkpoint = milepost.Checkpoint(array=array)
        path = checkpoint.write(str(tmp_path / "ckpt"), options)
        array.delete()
        go.set()
        checkpoint.sync()
        assert np.array_equal(milepost.load_variable(path, "array"), expected)

    def test_no_copy_is_made(self, tmp_path):
        array = jnp.arange(1_000_000, dtype=jnp.float32)
        (value,) = adapter_of(array).values(array)
        assert value.read().constant

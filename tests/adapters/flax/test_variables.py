"""Variables of NNX: whatever they hold comes back into the same object, with the same metadata."""

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
import jax
import jax.numpy as jnp
from flax import nnx

import milepost
from tests.adapters.flax.models import keys

KINDS = {
    kind
    for module in (nnx, nnx.metrics, nnx.optimizer)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, nnx.Variable)
}
DTYPES = [*("float32", "float16", "int8", "uint8", "int32", "uint32", "bool", "complex64"), ml_dtypes.bfloat16]


def carried(path, saved, live, **options):
    """``live``, restored from what ``saved`` was saved as."""
    milepost.Checkpoint(v=saved).write(path)
    milepost.Checkpoint(v=live).read(path).assert_consumed()
    return live


@pytest.mark.parametrize("kind", sorted(KINDS, key=str))
def test_a_variable_of_any_type_is_one_value(path, kind):
    live = carried(path, kind(jnp.ones(2)), kind(jnp.zeros(2)))
    assert keys(path) == ["v"]
    assert type(live) is kind
    np.testing.assert_array_equal(live, [1.0, 1.0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type_comes_back(path, dtype):
    live = carried(path, nnx.Param(jnp.array([0, 1, 1], dtype)), nnx.Param(jnp.zeros(3, dtype)))
    assert isinstance(live.get_value(), jax.Array)
    assert live.dtype == dtype
    np.testing.assert_array_equal(live, np.array([0, 1, 1], dtype))


def test_the_type_of_a_variable_may_differ(path):
    np.testing.assert_array_equal(carried(path, nnx.Param(jnp.ones(2)), nnx.BatchStat(jnp.zeros(2))), [1.0, 1.0])


def test_metadata_stays_as_it_is(path):
    live = nnx.Param(jnp.zeros(2), out_sharding=None, mine="kept")
    before = live.get_metadata()
    carried(path, nnx.Param(jnp.ones(2), mine="other"), live)
    assert live.get_metadata() == before


def test_hooks_do_not_change_a_value_on_its_way(path):
    def double(variable, value):
        return value * 2

    with pytest.warns(UserWarning, match="hooks are deprecated"):
        saved, live = (nnx.Param(jnp.full(2, value), on_get_value=double, on_set_value=double) for value in (1.0, 5.0))
    carried(path, saved, live)
    np.testing.assert_array_equal(live.get_raw_value(), [1.0, 1.0])


@pytest.mark.parametrize("option", ["ref", "hijax"])
def test_variables_that_jax_can_change_in_place_are_restored(path, option):
    live = carried(path, nnx.Param(jnp.ones(2), **{option: True}), nnx.Param(jnp.zeros(2), **{option: True}))
    assert getattr(live, option)
    np.testing.assert_array_equal(live.get_value(), [1.0, 1.0])


def test_a_reference_stays_the_same_reference(path):
    live = nnx.Param(jnp.zeros(2), ref=True)
    reference = live.get_raw_value()
    carried(path, nnx.Param(jnp.ones(2)), live)
    assert live.get_raw_value() is reference
    np.testing.assert_array_equal(reference[...], [1.0, 1.0])


def test_a_key_is_saved_with_its_data(path):
    live = carried(path, nnx.RngKey(jax.random.key(7), tag="t"), nnx.RngKey(jax.random.key(1), tag="t"))
    assert jnp.array_equal(jax.random.key_data(live.get_value()), jax.random.key_data(jax.random.key(7)))


def key_of(impl):
    return nnx.RngKey(jax.random.key(7, impl=impl), tag="t")


def test_a_key_of_another_generator_is_refused_and_nothing_is_changed(path):
    milepost.Checkpoint(a=nnx.Param(jnp.ones(2)), key=key_of("rbg")).write(path)
    live = milepost.Checkpoint(a=nnx.Param(jnp.zeros(2)), key=key_of("unsafe_rbg"))
    with pytest.raises(milepost.MismatchError, match=r"(?s)another generator.*key: key/.*expected: unsafe_rbg"):
        live.read(path)
    np.testing.assert_array_equal(live.a, [0.0, 0.0])


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_of_every_generator_are_restored_into_models(path, impl):
    saved, live = (nnx.Rngs(jax.random.key(seed, impl=impl)) for seed in (0, 1))
    carried(path, saved, live)
    assert jnp.array_equal(live.default.key.get_value(), saved.default.key.get_value())


@pytest.mark.parametrize("number", [7, -(2**40), 0.1, True, 1 - 2j])
def test_a_python_number_comes_back_exactly(path, number):
    live = carried(path, nnx.Variable(number), nnx.Variable(type(number)(0)))
    assert type(live.get_value()) is type(number)
    assert live.get_value() == number


def test_a_number_that_no_file_can_hold_is_refused(path):
    with pytest.raises(milepost.UntrackableError, match=r"(?s)more than 64 bits.*key: v"):
        milepost.Checkpoint(v=nnx.Variable(2**70)).write(path)


def test_a_numpy_array_stays_one(path):
    live = carried(path, nnx.Variable(np.ones(2)), nnx.Variable(np.zeros(2)))
    assert type(live.get_raw_value()) is np.ndarray
    assert live.get_raw_value().tolist() == [1.0, 1.0]


def test_a_number_and_an_array_without_dimensions_take_each_others_values(path):
    assert carried(path, nnx.Variable(jnp.int32(7)), nnx.Variable(0)).get_value() == 7
    live = carried(path, nnx.Variable(7), nnx.Variable(jnp.int32(0)))
    assert live.get_value().dtype == jnp.int32
    assert int(live.get_value()) == 7


def test_a_number_that_does_not_fit_is_refused_and_nothing_is_changed(path):
    milepost.Checkpoint(a=nnx.Param(jnp.ones(2)), b=nnx.Variable(2**40), c=nnx.Variable(1)).write(path)
    live = milepost.Checkpoint(a=nnx.Param(jnp.zeros(2)), b=nnx.Variable(jnp.int32(0)), c=nnx.Variable(0))
    with pytest.raises(milepost.MismatchError, match=r"(?s)does not fit.*key: b/"):
        live.read(path)
    np.testing.assert_array_equal(live.a, [0.0, 0.0])
    assert (int(live.b.get_value()), live.c.get_value()) == (0, 0)


def test_a_numpy_scalar_stays_one(path):
    live = carried(path, nnx.Variable(np.float32(1.5)), nnx.Variable(np.float32(0)))
    assert type(live.get_raw_value()) is np.float32
    assert live.get_raw_value() == 1.5


def test_containers_in_a_variable_are_followed(path):
    def make(value):
        return nnx.Cache({"a": jnp.full(2, value), "b": (jnp.full(2, value), None)})

    live = carried(path, make(1.0), make(2.0))
    assert keys(path) == ["v/.ATTRIBUTES/a", "v/.ATTRIBUTES/b.S0"]
    held = live.get_value()
    assert type(held) is dict
    assert type(held["b"]) is tuple
    np.testing.assert_array_equal(held["a"], [1.0, 1.0])
    np.testing.assert_array_equal(held["b"][0], [1.0, 1.0])


def test_a_tuple_in_a_variable_gets_a_successor(path):
    live = carried(path, nnx.Cache((jnp.ones(2), jnp.ones(2))), nnx.Cache((jnp.zeros(2), jnp.zeros(2))))
    np.testing.assert_array_equal(live.get_value()[1], [1.0, 1.0])


def test_a_key_in_a_container_in_a_variable_comes_back(path):
    live = carried(path, nnx.Cache({"k": jax.random.key(7)}), nnx.Cache({"k": jax.random.key(1)}))
    assert live.get_value()["k"] == jax.random.key(7)


def test_of_another_container_in_a_variable_the_rest_stays(path):
    milepost.Checkpoint(v=nnx.Cache((jnp.ones(2),))).write(path)
    live = nnx.Cache((jnp.zeros(2), jnp.zeros(2)))
    report = milepost.Checkpoint(v=live).read(path).report()
    assert [entry.key for entry in report.missing] == ["v/.ATTRIBUTES/1"]
    np.testing.assert_array_equal(np.stack(live.get_value()), [[1.0, 1.0], [0.0, 0.0]])


def test_a_variable_in_a_variable_is_refused(path):
    with pytest.raises(milepost.UntrackableError, match="a Param that holds a Param"):
        milepost.Checkpoint(net=nnx.Dict(v=nnx.Param({"a": nnx.Param(jnp.ones(2))}))).write(path)


def test_a_state_in_a_variable_is_followed(path):
    live = carried(path, nnx.Cache(nnx.State({"a": jnp.ones(2)})), nnx.Cache(nnx.State({"a": jnp.zeros(2)})))
    np.testing.assert_array_equal(live.get_value()["a"], [1.0, 1.0])


def test_a_variable_of_nothing_has_no_value(path):
    carried(path, nnx.Variable(None), nnx.Variable(None))
    assert keys(path) == []


def test_what_a_variable_cannot_be_saved_with_is_refused(path):
    with pytest.raises(milepost.UntrackableError, match="a Param that holds a set"):
        milepost.Checkpoint(net=nnx.Dict(v=nnx.Param({1.0}))).write(path)


def test_a_wrong_shape_changes_nothing(path):
    milepost.Checkpoint(a=nnx.Param(jnp.ones(2)), b=nnx.Param(jnp.ones(3))).write(path)
    live = milepost.Checkpoint(a=nnx.Param(jnp.zeros(2)), b=nnx.Param(jnp.zeros(2)))
    with pytest.raises(milepost.MismatchError, match=r"(?s)key: b/.*expected: float32\[2\].*found: float32\[3\]"):
        live.read(path)
    np.testing.assert_array_equal(live.a, [0.0, 0.0])


def test_a_wrong_element_type_is_refused(path):
    milepost.Checkpoint(v=nnx.Param(jnp.ones(2))).write(path)
    with pytest.raises(milepost.MismatchError, match="wrong dtype"):
        milepost.Checkpoint(v=nnx.Param(jnp.zeros(2, jnp.bfloat16))).read(path)


def test_weak_types_stay_weak(path):
    live = carried(path, nnx.Variable(jnp.asarray(2.0)), nnx.Variable(jnp.asarray(1.0)))
    assert live.get_value().weak_type
    live = carried(path, nnx.Variable(jnp.float32(2.0)), nnx.Variable(jnp.float32(1.0)))
    assert not live.get_value().weak_type


def test_uncommitted_arrays_stay_uncommitted_and_committed_ones_committed(path):
    device = jax.devices()[0]
    for array in (jnp.zeros(2), jax.device_put(jnp.zeros(2), device)):
        live = carried(path, nnx.Param(jnp.ones(2)), nnx.Param(array))
        assert live.get_value().committed == array.committed


def test_an_array_over_a_mesh_keeps_its_sharding(path):
    mesh = jax.make_mesh((1,), ("model",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("model"))
    live = nnx.Param(jax.device_put(jnp.zeros(2), sharding))
    carried(path, nnx.Param(jnp.ones(2)), live)
    assert live.get_value().sharding == sharding


def test_partitioned_variables_keep_their_sharding(path):
    with jax.set_mesh(jax.make_mesh((1,), ("model",))):
        make = nnx.with_partitioning(lambda value: jnp.full(2, value), ("model",))
        saved, live = nnx.Param(make(1.0)), nnx.Param(make(2.0))
        before = live.get_value().sharding, live.get_metadata()
        carried(path, saved, live)
        assert (live.get_value().sharding, live.get_metadata()) == before
        np.testing.assert_array_equal(live, [1.0, 1.0])


def test_an_abstract_model_is_materialised(path):
    saved = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    milepost.Checkpoint(net=saved, rngs=nnx.Rngs(5)).write(path)
    net, rngs = nnx.eval_shape(lambda: (nnx.Linear(3, 3, rngs=nnx.Rngs(1)), nnx.Rngs(2)))
    milepost.Checkpoint(net=net, rngs=rngs).read(path).assert_consumed()
    np.testing.assert_array_equal(net.kernel, saved.kernel)
    assert jnp.array_equal(net(jnp.ones((2, 3))), saved(jnp.ones((2, 3))))
    assert jnp.array_equal(rngs.default.key.get_value(), jax.random.key(5))


def test_an_abstract_model_cannot_be_saved(path):
    net = nnx.eval_shape(lambda: nnx.Linear(3, 3, rngs=nnx.Rngs(1)))
    with pytest.raises(milepost.MilepostError, match="net/"):
        milepost.Checkpoint(net=net).write(path)


def sharded(mesh):
    """An abstract layer whose kernel says how it is sharded, but not over which devices."""
    initial = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
    with jax.set_mesh(mesh):
        return nnx.eval_shape(lambda: nnx.Linear(3, 3, kernel_init=initial, rngs=nnx.Rngs(1)))


def test_an_abstract_model_that_is_sharded_is_materialised_over_the_mesh_in_use(path):
    saved = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    milepost.Checkpoint(net=saved).write(path)
    mesh = jax.make_mesh((1,), ("model",))
    net = sharded(mesh)
    with jax.set_mesh(mesh):
        milepost.Checkpoint(net=net).read(path).assert_consumed()
    spec = jax.sharding.PartitionSpec(None, "model")
    assert net.kernel.get_value().sharding == jax.sharding.NamedSharding(mesh, spec)
    np.testing.assert_array_equal(net.kernel.get_value(), saved.kernel)


def test_an_abstract_model_that_is_sharded_over_no_mesh_in_use_is_refused(path):
    milepost.Checkpoint(net=nnx.Linear(3, 3, rngs=nnx.Rngs(0))).write(path)
    net = sharded(jax.make_mesh((1,), ("model",)))
    with pytest.raises(milepost.UnsupportedError, match=r"not over which devices"):
        milepost.Checkpoint(net=net).read(path)
    assert isinstance(net.kernel.get_raw_value(), jax.ShapeDtypeStruct)
    assert isinstance(net.bias.get_raw_value(), jax.ShapeDtypeStruct)

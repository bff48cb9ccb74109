"""Values that wait for modules and variables of NNX, which come into being without a word."""

import gc
import warnings
import weakref

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
import jax.numpy as jnp
import optax
from flax import nnx

import milepost
from tests.adapters.flax.models import Net, keys, train_step, trainer


def linear(seed):
    return nnx.Linear(3, 3, rngs=nnx.Rngs(seed))


@pytest.fixture
def saved(path):
    """A network of two layers, saved under ``path``."""
    net = nnx.Dict(base=linear(0), head=linear(1))
    milepost.Checkpoint(net=net).write(path)
    return net


def half(path, seed=2):
    """A network that has the first layer only, restored."""
    net = nnx.Dict(base=linear(seed))
    return net, milepost.Checkpoint(net=net).read(path)


def test_what_is_not_there_is_reported_as_deferred(path, saved):
    _, status = half(path)
    status.assert_existing_objects_matched()
    assert [entry.key.split("/.")[0] for entry in status.report().deferred] == ["net/head/bias", "net/head/kernel"]
    with pytest.raises(milepost.UnmatchedError, match="deferred: net/head/kernel"):
        status.assert_consumed()


@pytest.mark.parametrize("ask", ["assert_existing_objects_matched", "assert_consumed", "report"])
def test_asking_the_status_gives_late_modules_their_values(path, saved, ask):
    net, status = half(path)
    net["head"] = linear(3)
    getattr(status, ask)()
    np.testing.assert_array_equal(net["head"].kernel, saved["head"].kernel)
    status.assert_consumed()


def test_a_late_variable_of_a_module_gets_its_value(path, saved):
    net = nnx.Dict(base=linear(2), head=nnx.Dict())
    status = milepost.Checkpoint(net=net).read(path)
    net["head"]["kernel"] = nnx.Param(jnp.zeros((3, 3)))
    status.assert_existing_objects_matched()
    np.testing.assert_array_equal(net["head"]["kernel"], saved["head"].kernel)
    assert [entry.key.split("/.")[0] for entry in status.report().deferred] == ["net/head/bias"]


def test_a_late_array_of_a_module_gets_its_value(path):
    milepost.Checkpoint(net=nnx.Dict(scale=jnp.ones(2))).write(path)
    net = nnx.Dict()
    status = milepost.Checkpoint(net=net).read(path)
    net["scale"] = jnp.zeros(2)
    status.assert_consumed()
    np.testing.assert_array_equal(net["scale"], [1.0, 1.0])


def test_a_layer_that_is_appended_to_a_list_gets_its_values(path):
    saved, net = nnx.List([linear(0), linear(1)]), nnx.List([linear(2)])
    milepost.Checkpoint(net=saved).write(path)
    status = milepost.Checkpoint(net=net).read(path)
    net.append(linear(3))
    status.assert_consumed()
    np.testing.assert_array_equal(net[1].kernel, saved[1].kernel)


def test_what_becomes_an_attribute_of_a_checkpoint_has_its_values_at_once(path):
    saved, late = trainer(0), trainer(1)
    train_step(saved.net, saved.optimizer)
    saved.write(path)
    checkpoint = milepost.Checkpoint()
    status = checkpoint.read(path)
    checkpoint.net, checkpoint.optimizer = late.net, late.optimizer
    np.testing.assert_array_equal(late.net.l1.kernel, saved.net.l1.kernel)
    np.testing.assert_array_equal(
        late.optimizer.opt_state[0].mu["l1"]["kernel"], saved.optimizer.opt_state[0].mu["l1"]["kernel"]
    )
    status.assert_consumed()


def add_head(path):
    """A network that gets its head after the restore, and trains it."""
    net = nnx.Dict(base=linear(2))
    checkpoint = milepost.Checkpoint(net=net)
    status = checkpoint.read(path)
    net["head"] = linear(3)
    net["head"].kernel[...] += 1
    return checkpoint, status


def test_a_save_does_not_overwrite_a_late_module_that_may_have_been_trained(path, saved, tmp_path):
    checkpoint, _status = add_head(path)
    trained = checkpoint.net["head"].kernel[...]
    with pytest.raises(milepost.UntrackableError, match="may have been trained") as caught:
        checkpoint.write(tmp_path / "second")
    assert caught.value.key == "net/head"
    np.testing.assert_array_equal(checkpoint.net["head"].kernel, trained)
    assert not list(tmp_path.glob("second*"))


def test_a_late_module_keeps_what_was_trained_if_the_restore_is_to_wait_no_longer(path, saved, tmp_path):
    checkpoint, status = add_head(path)
    trained = checkpoint.net["head"].kernel[...]
    status.expect_partial().stop_waiting()
    again = checkpoint.write(tmp_path / "second")
    np.testing.assert_array_equal(milepost.load_variable(again, "net/head/kernel/.ATTRIBUTES/VARIABLE_VALUE"), trained)


def test_a_save_takes_along_what_still_waits(path, saved, tmp_path):
    net, status = half(path)
    again = milepost.Checkpoint(net=net).write(tmp_path / "second")
    assert keys(again) == keys(path)
    np.testing.assert_array_equal(
        milepost.load_variable(again, "net/head/kernel/.ATTRIBUTES/VARIABLE_VALUE"), saved["head"].kernel
    )
    status.expect_partial()


def test_a_late_module_that_does_not_fit_is_an_error_and_stays_as_it_is(path, saved):
    net, status = half(path)
    net["head"] = nnx.Linear(3, 2, rngs=nnx.Rngs(3))
    before = np.array(net["head"].kernel)
    with pytest.raises(milepost.MismatchError, match="net/head/kernel"):
        status.assert_existing_objects_matched()
    np.testing.assert_array_equal(net["head"].kernel, before)


def test_of_two_restores_the_newer_one_reaches_late_modules(path, tmp_path):
    milepost.Checkpoint(net=nnx.Dict(base=linear(0), head=linear(1))).write(path)
    newer = nnx.Dict(base=linear(4), head=linear(5))
    milepost.Checkpoint(net=newer).write(tmp_path / "newer")
    net, status = half(path)
    newest = milepost.Checkpoint(net=net).read(tmp_path / "newer")
    net["head"] = linear(6)
    for each in (status, newest):
        each.report()
        np.testing.assert_array_equal(net["head"].kernel, newer["head"].kernel)


def test_a_replaced_layer_is_not_restored_twice(path, saved):
    net, status = half(path)
    net["base"] = linear(7)
    before = np.array(net["base"].kernel)
    report = status.report()
    np.testing.assert_array_equal(net["base"].kernel, before)
    assert [entry.key.split("/.")[0] for entry in report.missing] == ["net/base/bias", "net/base/kernel"]


def test_nothing_is_kept_of_a_model_that_is_gone(path, saved):
    net, status = half(path)
    kept = [weakref.ref(each) for each in (net, net.base, status)]
    del net, status
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", milepost.UnrestoredWarning)
        gc.collect()
    assert [each() for each in kept] == [None, None, None]


def test_a_model_alone_is_restored_before_its_optimizer_exists(path):
    saved = trainer(0)
    train_step(saved.net, saved.optimizer)
    saved.write(path)
    checkpoint = milepost.Checkpoint(net=Net(nnx.Rngs(1)))
    status = checkpoint.read(path)
    checkpoint.optimizer = nnx.Optimizer(checkpoint.net, optax.adamw(0.1), wrt=nnx.Param)
    status.assert_consumed()
    assert int(checkpoint.optimizer.step[...]) == 1


def test_values_go_on_waiting_while_a_model_is_trained(path, saved):
    net, status = half(path)

    @nnx.jit
    def step(net):
        net["base"].bias[...] += 1

    step(net)
    net["head"] = linear(3)
    trained = np.array(net["base"].bias)
    status.assert_consumed()
    np.testing.assert_array_equal(net["head"].kernel, saved["head"].kernel)
    np.testing.assert_array_equal(net["base"].bias, trained)


def test_without_the_status_another_restore_lets_a_late_layer_be_saved_again(path, saved, tmp_path):
    net = nnx.Dict(base=linear(1))
    checkpoint = milepost.Checkpoint(net=net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", milepost.UnrestoredWarning)
        checkpoint.read(path)
        gc.collect()
    net["head"] = linear(2)
    net["head"].kernel[...] += 1
    kept = np.array(net["head"].kernel)
    with pytest.raises(
        milepost.UntrackableError, match=r"without the status, copy their present values, restore again"
    ):
        checkpoint.write(tmp_path / "again")
    checkpoint.read(path).assert_consumed()
    np.testing.assert_array_equal(net["head"].kernel, saved["head"].kernel)
    net["head"].kernel[...] = kept
    again = checkpoint.write(tmp_path / "again")
    np.testing.assert_array_equal(milepost.load_variable(again, "net/head/kernel/.ATTRIBUTES/VARIABLE_VALUE"), kept)

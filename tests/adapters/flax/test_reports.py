"""What a report says when checkpoint and model are not alike, and what other readers see in the file."""

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
import jax
from flax import nnx

import milepost
from tests.adapters.flax.models import Stack, train_step, trainer


def names(entries):
    return [entry.key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for entry in entries]


def layers(*numbers):
    return sorted(f"net/layers/{number}/{name}" for number in numbers for name in ("bias", "kernel"))


def test_twelve_layers_restore_into_the_first_of_sixteen(path):
    saved, live = Stack(12, nnx.Rngs(0)), Stack(16, nnx.Rngs(1))
    before = np.array(live.layers[12].kernel)
    milepost.Checkpoint(net=saved).write(path)
    status = milepost.Checkpoint(net=live).read(path)
    report = status.report()
    assert names(report.missing) == layers(12, 13, 14, 15)
    assert len(report.matched) == 24
    assert not report.unexpected
    assert not report.deferred
    for number in range(12):
        np.testing.assert_array_equal(live.layers[number].kernel, saved.layers[number].kernel)
    np.testing.assert_array_equal(live.layers[12].kernel, before)
    for assertion in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(milepost.UnmatchedError, match="8 not matched"):
            assertion()


def test_sixteen_layers_leave_four_waiting_beside_twelve(path):
    milepost.Checkpoint(net=Stack(16, nnx.Rngs(0))).write(path)
    status = milepost.Checkpoint(net=Stack(12, nnx.Rngs(1))).read(path)
    status.assert_existing_objects_matched()
    assert names(status.report().deferred) == layers(12, 13, 14, 15)
    with pytest.raises(milepost.UnmatchedError, match="8 not matched"):
        status.assert_consumed()


def test_a_renamed_layer_is_missing_by_one_name_and_waits_under_the_other(path):
    def make(name):
        return nnx.Dict({"l1": nnx.Linear(3, 3, rngs=nnx.Rngs(0)), name: nnx.Linear(3, 3, rngs=nnx.Rngs(1))})

    milepost.Checkpoint(net=make("head")).write(path)
    status = milepost.Checkpoint(net=make("top")).read(path)
    assert names(status.report().missing) == ["net/top/bias", "net/top/kernel"]
    assert names(status.report().deferred) == ["net/head/bias", "net/head/kernel"]
    with pytest.raises(milepost.UnmatchedError, match="missing: net/top/kernel"):
        status.assert_existing_objects_matched()


def test_a_layer_of_another_size_changes_nothing(path):
    milepost.Checkpoint(net=nnx.Dict(a=nnx.Linear(3, 3, rngs=nnx.Rngs(0)), b=nnx.Embed(4, 3, rngs=nnx.Rngs(0)))).write(
        path
    )
    live = nnx.Dict(a=nnx.Linear(3, 3, rngs=nnx.Rngs(1)), b=nnx.Embed(3, 3, rngs=nnx.Rngs(1)))
    before = [np.array(leaf) for leaf in jax.tree.leaves(nnx.state(live))]
    with pytest.raises(milepost.MismatchError, match=r"(?s)net/b/embedding.*float32\[3,3\].*float32\[4,3\]") as caught:
        milepost.Checkpoint(net=live).read(path)
    assert names(caught.value.report) == ["net/b/embedding"]
    for leaf, old in zip(jax.tree.leaves(nnx.state(live)), before, strict=True):
        np.testing.assert_array_equal(leaf, old)


def test_tensorflow_reads_the_file(path):
    tf = pytest.importorskip("tensorflow")
    saved = trainer(0)
    train_step(saved.net, saved.optimizer)
    prefix = saved.write(path)
    reader = tf.train.load_checkpoint(prefix)
    for key, value in {
        "net/l1/kernel": saved.net.l1.kernel,
        "net/norm/mean": saved.net.norm.mean,
        "optimizer/opt_state/0/mu/l1/kernel": saved.optimizer.opt_state[0].mu["l1"]["kernel"],
        "optimizer/step": saved.optimizer.step,
    }.items():
        np.testing.assert_array_equal(reader.get_tensor(f"{key}/.ATTRIBUTES/VARIABLE_VALUE"), value)

"""Checkpoints that a training loop of TensorFlow with Keras 3 saves after it has lost values in its own restore."""

import json
import textwrap

import numpy as np
import pytest

import milepost
from tests import programs

tf = pytest.importorskip("tensorflow", reason="TensorFlow loses the values")
keras = pytest.importorskip("keras", minversion="3", reason="TensorFlow loses values of Keras 3 only")
if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow reads checkpoints into Keras 3 on its own backend only", allow_module_level=True)

RUN = textwrap.dedent(
    """
    import sys
    import tensorflow as tf

    class Net(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.l1 = tf.keras.layers.Dense(5)

        def call(self, x):
            return self.l1(x)

    net, optimizer = Net(), tf.keras.optimizers.Adam(0.1)
    checkpoint = tf.train.Checkpoint(step=tf.Variable(1), optimizer=optimizer, net=net)
    manager = tf.train.CheckpointManager(checkpoint, sys.argv[1], max_to_keep=None)
    checkpoint.restore(manager.latest_checkpoint)
    x = tf.range(10.0)[:, None]
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(net(x) - x * 5))
        variables = net.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        checkpoint.step.assign_add(1)
    manager.save()
    """
)


class Net(keras.Model):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.l1 = keras.layers.Dense(5)

    def call(self, x):
        return self.l1(x)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    for _ in range(2):
        done = programs.run(
            ["-c", RUN, directory],
            imports=programs.imports("tensorflow", "keras"),
            environment=programs.environment(),
        )
        assert done.returncode == 0, done.stderr
    names = json.dumps(milepost.list_variables(directory / "ckpt-2"))
    if "_trainable_variables/0" not in names:
        pytest.skip("this TensorFlow loses no values")
    return directory


def live(built):
    net, optimizer = Net(), keras.optimizers.Adam(0.1)
    if built:
        net(np.zeros((1, 1), np.float32))
        optimizer.build(net.trainable_variables)
    return net, milepost.Checkpoint(step=tf.Variable(1), optimizer=optimizer, net=net)


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
class TestRestoring:
    def test_is_refused_before_anything_is_changed(self, directory, built):
        _, checkpoint = live(built)
        with pytest.raises(milepost.MismatchError, match="had lost values") as caught:
            checkpoint.restore(directory / "ckpt-2")
        assert int(checkpoint.step) == 1
        assert "restore the last checkpoint that was saved before" in str(caught.value)

    def test_what_was_saved_before_is_restored(self, directory, built):
        net, checkpoint = live(built)
        status = checkpoint.restore(directory / "ckpt-1")
        net(np.zeros((1, 1), np.float32))
        checkpoint.optimizer.build(net.trainable_variables)
        status.assert_consumed()

    def test_without_the_optimizer_takes_the_weights(self, directory, built):
        net, _ = live(built)
        milepost.Checkpoint(net=net).read(directory / "ckpt-2").expect_partial()
        net(np.zeros((1, 1), np.float32))
        saved = milepost.load_variable(directory / "ckpt-2", "net/l1/bias/.ATTRIBUTES/VARIABLE_VALUE")
        np.testing.assert_array_equal(np.asarray(net.l1.bias), saved)


def test_an_optimizer_of_more_than_is_saved_is_restored(tmp_path):
    """That some of its variables are in no layer is nothing that was lost."""
    dense, optimizer = keras.layers.Dense(2), keras.optimizers.Adam(0.1)
    dense.build((1, 2))
    apart = keras.Variable(np.zeros((2, 2), np.float32), name="kernel")
    optimizer.build([apart, *dense.trainable_variables])
    path = tf.train.Checkpoint(dense=dense, optimizer=optimizer).write(str(tmp_path / "ckpt"))
    other = keras.optimizers.Adam(0.1)
    other.build([apart, *dense.trainable_variables])
    milepost.Checkpoint(dense=dense, optimizer=other).read(path).assert_existing_objects_matched()

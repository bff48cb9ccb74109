"""Checkpoints of TensorFlow 1's ``Saver``, restored by name into variables of TensorFlow 2."""

import numpy as np
import pytest

from milepost import Checkpoint, MismatchError
from tests.adapters.tensorflow.frameworks import keras, tf

v1 = tf.compat.v1


@pytest.fixture(params=["V1", "V2"])
def saved(request, tmp_path):
    """A checkpoint of dense/kernel, dense/bias and a variable in parts."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("dense/kernel", initializer=np.arange(6, dtype=np.float32).reshape(2, 3))
        v1.get_variable("dense/bias", initializer=np.float32([1, 2, 3]))
        v1.get_variable(
            "parts",
            shape=[4, 1],
            initializer=lambda shape, dtype=None, partition_info=None: tf.ones(shape) * partition_info.var_offset[0],
            partitioner=v1.fixed_size_partitioner(2),
        )
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(write_version=getattr(v1.train.SaverDef, request.param))
        return saver.save(session, str(tmp_path / "model.ckpt"))


def test_variables_are_matched_by_their_names(saved):
    kernel = tf.Variable(tf.zeros([2, 3]), name="dense/kernel")
    parts = tf.Variable(tf.zeros([4, 1]), name="parts")
    Checkpoint(a=kernel, b=parts).restore(saved).assert_consumed()
    assert kernel.numpy().ravel().tolist() == [0, 1, 2, 3, 4, 5]
    assert parts.numpy().ravel().tolist() == [0, 0, 2, 2]


def test_variables_of_layers_are_matched_when_they_are_made(saved):
    layer = keras.layers.Dense(3, name="dense")
    status = Checkpoint(layer=layer).restore(saved)
    assert layer(tf.ones([1, 2])).numpy().tolist() == [[3 + 1, 5 + 2, 7 + 3]]
    status.assert_consumed()


def test_names_that_are_missing_fail_the_assertions(saved):
    status = Checkpoint(v=tf.Variable(0.0, name="elsewhere")).restore(saved)
    with pytest.raises(AssertionError, match="elsewhere"):
        status.assert_consumed()


def test_a_shape_that_does_not_fit_changes_nothing(saved):
    kernel = tf.Variable(tf.zeros([2, 3]), name="dense/kernel")
    with pytest.raises(MismatchError):
        Checkpoint(a=kernel, b=tf.Variable([0.0], name="dense/bias")).restore(saved)
    assert not kernel.numpy().any()

"""Files of TensorFlow 1, which have no graph of objects, restore into Keras 3 by the paths of variables."""

import numpy as np
import pytest

import milepost
from tests.adapters.keras.models import keras

tf = pytest.importorskip("tensorflow", reason="TensorFlow writes the files")
v1 = tf.compat.v1


@pytest.fixture
def saved(tmp_path):
    """A layer as TensorFlow 1 had it, with its kernel in two partitions."""
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("net/dense"):
            v1.get_variable("bias", initializer=np.ones(3, "float32"))
            v1.get_variable(
                "kernel",
                shape=(4, 3),
                initializer=v1.constant_initializer(2.0),
                partitioner=v1.fixed_size_partitioner(2),
            )
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(tmp_path / "model"))


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
def test_a_model_gets_its_values(saved, built):
    model = keras.Sequential([keras.layers.Dense(3, name="dense")], name="net")
    if built:
        model.build((None, 4))
    status = milepost.Checkpoint(model).read(saved)
    output = keras.ops.convert_to_numpy(model(np.ones((1, 4), "float32")))
    np.testing.assert_array_equal(output, [[9.0, 9.0, 9.0]])
    status.assert_consumed()
    assert not status.report().unexpected


def test_a_path_that_the_file_lacks_is_reported(saved):
    model = keras.Sequential([keras.layers.Dense(3, name="other")], name="net")
    model.build((None, 4))
    status = milepost.Checkpoint(model).read(saved)
    assert [entry.key for entry in status.report().missing] == ["net/other/bias", "net/other/kernel"]
    with pytest.raises(milepost.UnmatchedError, match="net/other"):
        status.assert_consumed()

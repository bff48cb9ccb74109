"""`RandomState` with what TensorFlow and Keras draw from."""

import pytest

import milepost
from tests.adapters.tensorflow.frameworks import tf


def test_random_state_has_what_set_seed_began(tmp_path):
    before = milepost.RandomState()
    kept = milepost.Checkpoint(random=before).write(tmp_path / "before")
    try:
        tf.random.set_seed(1)
        tf.random.normal([2])
        path = milepost.Checkpoint(random=milepost.RandomState()).write(tmp_path / "ckpt")
        expected = [tf.random.normal([2]).numpy().tolist() for _ in range(2)]
        for _ in range(2):  # also where TensorFlow has cached these very operations
            milepost.Checkpoint(random=milepost.RandomState()).read(path).assert_consumed()
            assert [tf.random.normal([2]).numpy().tolist() for _ in range(2)] == expected
        tf.random.set_seed(2)
        milepost.Checkpoint(random=milepost.RandomState()).read(path).assert_consumed()
        assert [tf.random.normal([2]).numpy().tolist() for _ in range(2)] == expected
    finally:
        milepost.Checkpoint(random=before).read(kept)


def test_random_state_has_the_global_generator(tmp_path):
    tf.random.set_global_generator(tf.random.Generator.from_seed(3))
    path = milepost.Checkpoint(random=milepost.RandomState()).write(tmp_path / "ckpt")
    expected = tf.random.get_global_generator().normal([2]).numpy().tolist()
    milepost.Checkpoint(random=milepost.RandomState()).read(path).assert_consumed()
    assert tf.random.get_global_generator().normal([2]).numpy().tolist() == expected
    tf.random.set_global_generator(None)
    milepost.Checkpoint(random=milepost.RandomState()).read(path).assert_consumed()
    assert tf.random.get_global_generator().normal([2]).numpy().tolist() == expected


def test_random_state_has_keras_own_seed_generator(tmp_path):
    keras = pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")
    keras.random.uniform([1])
    path = milepost.Checkpoint(random=milepost.RandomState()).write(tmp_path / "ckpt")
    expected = keras.ops.convert_to_numpy(keras.random.uniform([3])).tolist()
    milepost.Checkpoint(random=milepost.RandomState()).read(path).assert_consumed()
    assert keras.ops.convert_to_numpy(keras.random.uniform([3])).tolist() == expected

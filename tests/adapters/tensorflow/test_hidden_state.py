"""State of Keras 2's layers that TensorFlow's tracking passes over."""

import numpy as np
import pytest

import milepost
from tests.adapters.tensorflow.frameworks import keras, tf

layers = keras.layers


def restored(layer, fresh, directory):
    path = milepost.Checkpoint(layer=layer).write(directory / "ckpt")
    milepost.Checkpoint(layer=fresh).read(path).assert_consumed().assert_existing_objects_matched()
    return fresh


def adapted(layer, data):
    layer.adapt(data)
    return layer


@pytest.mark.parametrize("mode", ["int", "multi_hot", "tf_idf"])
def test_vocabularies_are_restored(mode, tmp_path):
    words = np.array(["b", "a", "b", "c"])
    other = np.array(["z", "y", "x", "x"])
    layer = adapted(layers.StringLookup(output_mode=mode), words[:, None])
    fresh = restored(layer, adapted(layers.StringLookup(output_mode=mode), other[:, None]), tmp_path)
    assert fresh.get_vocabulary() == layer.get_vocabulary()
    np.testing.assert_array_equal(fresh(words[:, None]), layer(words[:, None]))


def test_vocabularies_of_numbers_are_restored(tmp_path):
    layer = adapted(layers.IntegerLookup(), np.array([[5], [7], [5]]))
    assert restored(layer, layers.IntegerLookup(), tmp_path).get_vocabulary() == layer.get_vocabulary()


def test_vocabularies_of_text_vectorization_are_restored(tmp_path):
    layer = adapted(layers.TextVectorization(), ["a rose is a rose"])
    fresh = restored(layer, layers.TextVectorization(), tmp_path)
    np.testing.assert_array_equal(fresh(["a rose"]), layer(["a rose"]))


def test_boundaries_are_restored(tmp_path):
    layer = adapted(layers.Discretization(num_bins=3), np.arange(10.0, dtype="float32"))
    fresh = adapted(layers.Discretization(num_bins=3), np.zeros(3, "float32"))
    x = tf.constant([1.0, 5.0, 9.0])
    np.testing.assert_array_equal(restored(layer, fresh, tmp_path)(x), layer(x))


def stateful(kind):
    return keras.Sequential([getattr(layers, kind)(3, stateful=True, batch_input_shape=(1, 5, 2)), layers.Dense(1)])


@pytest.mark.parametrize("kind", ["SimpleRNN", "GRU", "LSTM"])
def test_states_of_recurrent_layers_are_restored(kind, tmp_path):
    x = tf.ones([1, 5, 2])
    model = stateful(kind)
    model(x)
    fresh = restored(model, stateful(kind), tmp_path)
    np.testing.assert_array_equal(fresh(x), model(x))


def test_states_of_recurrent_layers_that_are_built_later_are_restored(tmp_path):
    x = tf.ones([1, 5, 2])

    def make():
        return keras.Sequential([layers.LSTM(3, stateful=True)])

    model = make()
    model(x)
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    fresh = make()
    status = milepost.Checkpoint(model=fresh).read(path)
    np.testing.assert_array_equal(fresh(x), model(x))
    status.assert_consumed()


@pytest.fixture
def tf_random_generator():
    before = keras.backend.experimental.is_tf_random_generator_enabled()
    keras.backend.experimental.enable_tf_random_generator()
    yield
    if not before:
        keras.backend.experimental.disable_tf_random_generator()


@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
@pytest.mark.usefixtures("tf_random_generator")
def test_generators_of_dropout_are_restored(built, tmp_path):
    layer, x = layers.Dropout(0.5, seed=1), tf.ones([8, 8])
    layer(x, training=True)
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    fresh = layers.Dropout(0.5, seed=2)
    if built:
        fresh(x, training=True)
    status = milepost.Checkpoint(layer=fresh).read(path)
    np.testing.assert_array_equal(fresh(x, training=True), layer(x, training=True))
    status.assert_consumed()


def test_a_generator_that_cannot_be_saved_is_named(tmp_path):
    with pytest.warns(milepost.UntrackedWarning, match="layer/_random_generator.*enable_tf_random_generator"):
        milepost.Checkpoint(layer=layers.Dropout(0.5)).write(tmp_path / "ckpt")


@pytest.mark.parametrize("layer", [layers.Dropout(0), layers.LSTM(2)], ids=["dropout of nothing", "lstm"])
def test_a_generator_that_is_never_drawn_from_is_not_named(layer, tmp_path, recwarn):
    milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    assert not [each for each in recwarn if each.category is milepost.UntrackedWarning]


def test_tensorflow_is_not_told_of_it(tmp_path):
    layer = adapted(layers.StringLookup(), np.array([["a"]]))
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    tf.train.Checkpoint(layer=layers.StringLookup()).read(path).assert_consumed()


def test_files_of_tensorflow_lack_it_and_are_restored(tmp_path):
    path = tf.train.Checkpoint(layer=adapted(layers.StringLookup(), np.array([["a"]]))).write(str(tmp_path / "ckpt"))
    fresh = adapted(layers.StringLookup(), np.array([["b"]]))
    milepost.Checkpoint(layer=fresh).read(path).assert_consumed().assert_existing_objects_matched()
    assert fresh.get_vocabulary() == ["[UNK]", "b"]

"""Models, layers and metrics of Keras 2, exchanged with `tf.train.Checkpoint`, and read from files of Keras 3."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint
from tests.adapters.tensorflow.frameworks import exchanged, keras, tf

layers = keras.layers
rng = np.random.RandomState(0)


def functional():
    inputs = keras.Input([4])
    hidden = layers.Dense(3)(inputs)
    return keras.Model(inputs, layers.Dense(2)(layers.Activation("tanh")(hidden)))


def nested():
    return keras.Sequential([layers.Reshape([4]), functional(), layers.BatchNormalization()])


def recurrent():
    return keras.Sequential([layers.Reshape([2, 2]), layers.Bidirectional(layers.LSTM(3)), layers.Dense(2)])


def convolutional():
    return keras.Sequential(
        [layers.Reshape([2, 2, 1]), layers.DepthwiseConv2D(2), layers.Conv2D(2, 1), layers.Flatten()]
    )


def embedding():
    return keras.Sequential([layers.Embedding(10, 3), layers.GlobalAveragePooling1D(), layers.Dense(2)])


x = tf.constant(rng.randint(0, 9, [5, 4]), tf.float32)


def randomised(make):
    model = make()
    model(x)
    for variable in model.variables:
        variable.assign(tf.constant(np.random.RandomState(1).rand(*variable.shape), variable.dtype))
    return model


@exchanged
@pytest.mark.parametrize("make", [functional, nested, recurrent, convolutional, embedding])
@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_models_are_exchanged(tmp_path, writer, reader, make, built):
    model = randomised(make)
    path = writer(model).write(str(tmp_path / "ckpt"))
    live = make()
    if built:
        live(x)
    status = reader(live).read(path)
    np.testing.assert_array_equal(live(x), model(x))
    status.assert_consumed()


def test_weights_saved_by_keras_are_restored(tmp_path):
    model = randomised(nested)
    model.save_weights(str(tmp_path / "weights"), save_format="tf")
    live = nested()
    status = Checkpoint(live).read(tmp_path / "weights")
    np.testing.assert_array_equal(live(x), model(x))
    status.assert_consumed()


def test_weights_saved_by_milepost_are_loaded_by_keras(tmp_path):
    model = randomised(nested)
    path = Checkpoint(model).write(tmp_path / "weights")
    live = nested()
    status = live.load_weights(path)
    np.testing.assert_array_equal(live(x), model(x))
    status.assert_consumed()


METRICS = {
    "Mean": lambda: keras.metrics.Mean(),
    "AUC": lambda: keras.metrics.AUC(num_thresholds=20),
    "MeanIoU": lambda: keras.metrics.MeanIoU(num_classes=2),
}


@exchanged
@pytest.mark.parametrize("name", METRICS)
def test_metrics_go_on_where_they_were(tmp_path, writer, reader, name):
    def update(metric, values):
        metric.update_state(*([values] if name == "Mean" else [tf.constant([0.0, 1.0]), values]))
        return metric.result().numpy()

    metric = METRICS[name]()
    update(metric, tf.constant([0.25, 0.75]))
    path = writer(metric=metric).write(str(tmp_path / "ckpt"))
    expected = update(metric, tf.constant([1.0, 0.0]))
    live = METRICS[name]()
    reader(metric=live).read(path).assert_consumed()
    assert update(live, tf.constant([1.0, 0.0])) == expected


def test_a_normalization_uses_what_it_was_given(tmp_path):
    def made(data):
        layer = layers.Normalization()
        layer.adapt(data)
        return layer

    saved = made(rng.rand(20, 4))
    path = Checkpoint(layer=saved).write(tmp_path / "ckpt")
    live = made(rng.rand(20, 4) + 5)
    Checkpoint(layer=live).read(path).assert_consumed()
    np.testing.assert_array_equal(live(x), saved(x))


@exchanged
def test_a_vocabulary_that_was_learned_is_exchanged(tmp_path, writer, reader):
    def made(words):
        layer = layers.StringLookup()
        layer.adapt(tf.constant(words))
        return layer

    def counts():
        return tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)

    table = counts()
    table.insert(tf.constant(["a"]), tf.constant([3], tf.int64))
    path = writer(layer=made(["a", "b"]), table=table).write(str(tmp_path / "ckpt"))
    live, other = made(["a", "b"]), counts()
    reader(layer=live, table=other).read(path).assert_existing_objects_matched()
    assert other.lookup(tf.constant("a")).numpy() == 3


def keras_3():
    module = pytest.importorskip("keras", reason="Keras is not installed")
    if int(module.__version__.partition(".")[0]) < 3:
        pytest.skip("Keras 3 is not installed")
    return module


@pytest.mark.parametrize("writer", ["milepost", "tensorflow"])
@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (lambda layers: layers.Dense(3), (2, 4)),
        (lambda layers: layers.Embedding(10, 3), (2, 4)),
        (lambda layers: layers.Conv1D(3, 2), (2, 4, 1)),
        (lambda layers: layers.DepthwiseConv2D(2), (2, 4, 4, 2)),
        (lambda layers: layers.BatchNormalization(), (2, 4)),
        (lambda layers: layers.GRU(3), (2, 4, 1)),
    ],
    ids=["Dense", "Embedding", "Conv1D", "DepthwiseConv2D", "BatchNormalization", "GRU"],
)
@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_layers_of_keras_3_are_read(tmp_path, writer, made, shape, built):
    newer = keras_3()
    if newer.backend.backend() != "tensorflow" and writer == "tensorflow":
        pytest.skip("TensorFlow saves Keras 3 on its own backend only")
    saved = made(newer.layers)
    inputs = rng.randint(0, 9, shape).astype("float32")
    saved(inputs)
    saved.set_weights([np.random.RandomState(1).rand(*weight.shape) for weight in saved.get_weights()])
    each = Checkpoint if writer == "milepost" else tf.train.Checkpoint
    path = each(layer=saved).write(str(tmp_path / "ckpt"))
    live = made(layers)
    if built:
        live(inputs)
    status = Checkpoint(layer=live).read(path)
    np.testing.assert_allclose(live(inputs), saved(inputs), rtol=1e-6)
    status.assert_existing_objects_matched()


@pytest.mark.parametrize("writer", ["milepost", "tensorflow"])
@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_an_optimizer_of_keras_3_is_read(tmp_path, writer, built):
    newer = keras_3()
    if newer.backend.backend() != "tensorflow":
        pytest.skip("the variable is TensorFlow's")
    saved = newer.optimizers.Adam(0.1)
    weights = [newer.Variable(np.ones([2], np.float32)), newer.Variable(np.ones([3], np.float32))]
    saved.apply([newer.ops.ones([2]), newer.ops.ones([3])], weights)
    each = Checkpoint if writer == "milepost" else tf.train.Checkpoint
    path = each(optimizer=saved).write(str(tmp_path / "ckpt"))
    live, variables = keras.optimizers.Adam(0.5), [tf.Variable(tf.zeros([2])), tf.Variable(tf.zeros([3]))]
    if built:
        live.build(variables)
    Checkpoint(optimizer=live).read(path).expect_partial()
    live.build(variables)
    assert live.iterations.numpy() == 1
    assert live.learning_rate.numpy() == np.float32(0.1)
    for ours, theirs in zip(live._momentums + live._velocities, saved._momentums + saved._velocities, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_objects_of_keras_3_are_left_to_their_own_adapter():
    newer = keras_3()
    from milepost.graph.adapter import adapter_of

    for obj in (newer.layers.Dense(1), newer.Sequential(), newer.optimizers.Adam(), newer.metrics.Mean()):
        assert type(adapter_of(obj)).__module__.startswith("milepost.adapters.keras")
    assert type(adapter_of(layers.Dense(1))).__module__.startswith("milepost.adapters.tensorflow")


def test_a_model_that_was_never_called_keeps_its_keys(tmp_path):
    def make():
        return keras.Sequential([layers.Dense(4), layers.Flatten(), keras.Sequential([layers.Dense(1)])])

    model = make()
    model(x)
    path = Checkpoint(model=model).write(tmp_path / "1")
    checkpoint = Checkpoint(model=make())
    checkpoint.read(path)
    again = checkpoint.write(tmp_path / "2")
    assert milepost.list_variables(again) == milepost.list_variables(path)

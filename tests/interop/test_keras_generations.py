"""One checkpoint for both generations of Keras: who reads what whom wrote, and trains on from there.

Each case saves a trained model and its optimizer, and compares the next losses of the writer with those of a reader.
"""

import importlib

import numpy as np
import pytest

import milepost

tf = pytest.importorskip("tensorflow", reason="compares with TensorFlow's own checkpoints")
keras = pytest.importorskip("keras", minversion="3", reason="compares Keras 3 with Keras 2")
pytest.importorskip("tf_keras", reason="Keras 2 is a package of its own beside Keras 3")
if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow reads checkpoints into Keras 3 on its own backend only", allow_module_level=True)

X = np.arange(10, dtype="float32")[:, None] / 10
Y = X * 5 + np.arange(5, dtype="float32")[None]
GENERATIONS = {
    "keras3": ("keras", "keras.optimizers"),
    "keras2": ("tf_keras", "tf_keras.optimizers"),
    "keras2_legacy": ("tf_keras", "tf_keras.optimizers.legacy"),
}
LIBRARIES = {"milepost": milepost.Checkpoint, "tensorflow": tf.train.Checkpoint}
OPTIMIZERS = {
    "adam": lambda o: o.Adam(0.01),
    "amsgrad": lambda o: o.Adam(0.01, amsgrad=True),
    "momentum": lambda o: o.SGD(0.01, momentum=0.9),
    "rmsprop": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda o: o.Adagrad(0.1, epsilon=1e-7),
    "adadelta": lambda o: o.Adadelta(0.5, epsilon=1e-7),
    "adamax": lambda o: o.Adamax(0.01),
    "ftrl": lambda o: o.Ftrl(0.1),
}


def subclassed(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.l1 = k.layers.Dense(4)
            self.norm = k.layers.BatchNormalization()
            self.l2 = k.layers.Dense(5)

        def call(self, x, training=None):
            return self.l2(self.norm(self.l1(x), training=training))

    return Net()


def sequential(k):
    return k.Sequential([k.layers.Dense(4), k.layers.Dropout(0.0), k.layers.Dense(5)])


def functional(k):
    inputs = k.Input((1,))
    both = k.layers.Add()([k.layers.Dense(4)(inputs), k.layers.Dense(4)(inputs)])
    return k.Model(inputs, k.layers.Dense(5)(both))


def convolutional(k):
    layers = k.layers
    return k.Sequential(
        [
            layers.Reshape((1, 1, 1)),
            layers.Conv2D(3, 1),
            layers.DepthwiseConv2D(1),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.RepeatVector(2),
            layers.LSTM(3),
            layers.Dense(5),
        ]
    )


MODELS = {each.__name__: each for each in (subclassed, sequential, functional, convolutional)}


class Training:
    """A model, its optimizer, and a checkpoint of one library of both."""

    def __init__(self, generation, library, model, optimizer):
        package, optimizers = (importlib.import_module(name) for name in GENERATIONS[generation])
        self.model = MODELS[model](package)
        self.optimizer = OPTIMIZERS[optimizer](optimizers)
        self.checkpoint = LIBRARIES[library](net=self.model, optimizer=self.optimizer)

    def losses(self, count):
        return [self._step() for _ in range(count)]

    def _step(self):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(X, training=True) - Y) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return float(loss)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Gives the checkpoint of a training and the losses that came after it; several tests read each."""
    found = {}

    def get(generation, library, model, optimizer, **options):
        key = (generation, library, model, optimizer, *options)
        if key not in found:
            training = Training(generation, library, model, optimizer)
            training.losses(3)
            path = str(tmp_path_factory.mktemp("written") / "c")
            arguments = {"options": milepost.CheckpointOptions(**options)} if options else {}
            found[key] = training.checkpoint.write(path, **arguments), training.losses(3)
        return found[key]

    return get


@pytest.fixture
def resumes(written):
    """A function that requires that a reader goes on with the losses of a writer."""

    def check(writer, reader, model, optimizer, *, trained, **options):
        path, expected = written(*writer, model, optimizer, **options)
        training = Training(*reader, model, optimizer)
        if trained:
            training.losses(2)
        status = training.checkpoint.read(path)
        status.assert_existing_objects_matched()
        np.testing.assert_allclose(training.losses(3), expected, rtol=2e-5)
        status.assert_consumed()

    return check


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
class TestModels:
    @pytest.mark.parametrize("writer", ["keras3", "keras2", "keras2_legacy"])
    @pytest.mark.parametrize("library", LIBRARIES)
    def test_milepost_resumes_keras_3_from(self, resumes, writer, library, model, trained):
        resumes((writer, library), ("keras3", "milepost"), model, "adam", trained=trained)

    @pytest.mark.parametrize("writer", ["keras3", "keras2"])
    def test_tensorflow_resumes_keras_2_from_milepost_and(self, resumes, writer, model, trained):
        resumes((writer, "milepost"), ("keras2", "tensorflow"), model, "adam", trained=trained)

    def test_tensorflow_resumes_keras_3_from_milepost_and_keras_3(self, resumes, model, trained):
        if not trained and model != "functional":
            pytest.skip("TensorFlow loses values of Keras 3 models that are not built, whoever wrote them")
        resumes(("keras3", "milepost"), ("keras3", "tensorflow"), model, "adam", trained=trained)

    def test_tensorflow_resumes_the_oldest_optimizers_from_milepost_and_keras_3(self, resumes, model, trained):
        writer, reader = ("keras3", "milepost"), ("keras2_legacy", "tensorflow")
        resumes(writer, reader, model, "adam", trained=trained, legacy_keras_optimizers=True)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
class TestOptimizers:
    @pytest.mark.parametrize("writer", ["keras3", "keras2", "keras2_legacy"])
    def test_milepost_resumes_keras_3_from_tensorflow_and(self, resumes, writer, optimizer):
        resumes((writer, "tensorflow"), ("keras3", "milepost"), "functional", optimizer, trained=False)

    @pytest.mark.parametrize("reader", ["keras3", "keras2"])
    @pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
    def test_tensorflow_resumes_from_milepost_and_keras_3(self, resumes, reader, optimizer, trained):
        if reader == "keras3" and not trained and optimizer in ("momentum", "rmsprop"):
            pytest.skip("TensorFlow needs this optimizer built: Keras 3 makes its lists twice, empty at first")
        resumes(("keras3", "milepost"), (reader, "tensorflow"), "functional", optimizer, trained=trained)

    def test_tensorflow_resumes_the_oldest_optimizers_from_milepost_and_keras_3(self, resumes, optimizer):
        writer, reader = ("keras3", "milepost"), ("keras2_legacy", "tensorflow")
        options = {"trained": True, "legacy_keras_optimizers": True}
        resumes(writer, reader, "functional", optimizer, **options)

    def test_milepost_resumes_keras_3_from_a_file_for_the_oldest(self, resumes, optimizer):
        both = ("keras3", "milepost")
        resumes(both, both, "functional", optimizer, trained=False, legacy_keras_optimizers=True)


def test_momentum_that_keras_3_does_not_keep_is_reported(tmp_path):
    tf_keras = importlib.import_module("tf_keras")
    model, optimizer = functional(tf_keras), tf_keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    path = tf.train.Checkpoint(net=model, optimizer=optimizer).write(str(tmp_path / "c"))
    other, plain = functional(keras), keras.optimizers.SGD(0.01)
    plain.build(other.trainable_variables)
    status = milepost.Checkpoint(net=other, optimizer=plain).read(path)
    status.assert_existing_objects_matched()
    with pytest.raises(milepost.UnmatchedError, match="optimizer"):
        status.assert_consumed()


def test_seeds_that_tensorflow_does_not_save_are_reported_but_fail_no_assertion(tmp_path):
    def made(k):
        model = k.Sequential([k.layers.Dense(4), k.layers.Dropout(0.5)])
        model(X)
        return model

    path = tf.train.Checkpoint(net=made(importlib.import_module("tf_keras"))).write(str(tmp_path / "c"))
    status = milepost.Checkpoint(net=made(keras)).read(path)
    status.assert_existing_objects_matched().assert_consumed()
    assert [entry.key.split("/")[2] for entry in status.report().missing] == ["seed_generator"]


def test_a_hyperparameter_of_the_oldest_optimizers_is_restored(tmp_path):
    legacy = importlib.import_module("tf_keras.optimizers.legacy").Adam(0.01, beta_1=0.75)
    variable = tf.Variable([1.0])
    legacy.apply_gradients([(tf.constant([1.0]), variable)])
    path = tf.train.Checkpoint(optimizer=legacy).write(str(tmp_path / "c"))
    optimizer = keras.optimizers.Adam(0.01)
    milepost.Checkpoint(optimizer=optimizer).read(path)
    assert optimizer.beta_1 == 0.75


def test_a_decay_that_keras_3_does_not_have_is_reported(tmp_path):
    legacy = importlib.import_module("tf_keras.optimizers.legacy").SGD(0.01, decay=0.5)
    legacy.apply_gradients([(tf.constant([1.0]), tf.Variable([1.0]))])
    path = tf.train.Checkpoint(optimizer=legacy).write(str(tmp_path / "c"))
    with pytest.warns(milepost.UnrestoredWarning, match="InverseTimeDecay"):
        milepost.Checkpoint(optimizer=keras.optimizers.SGD(0.01)).read(path)


@pytest.mark.parametrize("optimizer", ["Adafactor", "Lamb", "ScheduleFreeAdamW", "Muon"])
def test_tensorflow_resumes_what_only_the_flat_list_reaches(tmp_path, optimizer):
    def make():
        model = functional(keras)
        return model, getattr(keras.optimizers, optimizer)(0.01)

    def losses(model, optimizer, count):
        training = Training.__new__(Training)
        training.model, training.optimizer = model, optimizer
        return training.losses(count)

    model, writer = make()
    losses(model, writer, 3)
    path = milepost.Checkpoint(net=model, optimizer=writer).write(tmp_path / "c")
    expected = losses(model, writer, 3)
    other, reader = make()
    losses(other, reader, 2)
    status = tf.train.Checkpoint(net=other, optimizer=reader).read(path)
    status.assert_existing_objects_matched()
    assert losses(other, reader, 3) == expected
    status.assert_consumed()

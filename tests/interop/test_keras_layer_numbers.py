"""Which layer gets which weights, where layers without weights came or went since the save: the same, built or not."""

import numpy as np
import pytest

import milepost

tf = pytest.importorskip("tensorflow", reason="compares with TensorFlow's own checkpoints")
keras = pytest.importorskip("keras", minversion="3", reason="compares Keras 3 with Keras 2")
tf_keras = pytest.importorskip("tf_keras", reason="Keras 2 is a package of its own beside Keras 3")
if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow reads checkpoints into Keras 3 on its own backend only", allow_module_level=True)

X = np.random.RandomState(0).randn(5, 4).astype("float32")


def dense(k):
    return k.layers.Dense(4)


def nested(k):
    return k.Sequential([k.layers.Dropout(0.1), dense(k)])


STACKS = {
    "plain": lambda k: [dense(k), dense(k), dense(k)],
    "dropout": lambda k: [dense(k), k.layers.Dropout(0.3), dense(k), dense(k)],
    "dropout first": lambda k: [k.layers.Dropout(0.3), dense(k), dense(k), k.layers.Dropout(0.3), dense(k)],
    "activations": lambda k: [dense(k), k.layers.ReLU(), dense(k), k.layers.Activation("tanh"), dense(k)],
    "fewer": lambda k: [dense(k), dense(k)],
    "more": lambda k: [dense(k), dense(k), dense(k), dense(k)],
    "nested": lambda k: [dense(k), nested(k), dense(k)],
    "nested dropout": lambda k: [k.layers.Dropout(0.3), dense(k), k.layers.Dropout(0.3), nested(k), dense(k)],
}
FILES = {
    "TensorFlow, Keras 2": (tf_keras, tf.train.Checkpoint),
    "milepost, Keras 2": (tf_keras, milepost.Checkpoint),
    "milepost, Keras 3": (keras, milepost.Checkpoint),
}


def use(model, how):
    if how == "called":
        model(X)
    else:
        model.compile("sgd", "mse")
        model.predict(X, verbose=0)
    return model


def saved(file, stack, path):
    k, checkpoint = FILES[file]
    model = use(k.Sequential(STACKS[stack](k)), "called")
    for number, variable in enumerate(model.weights):
        variable.assign(np.full(variable.shape, number, np.float32))
    return checkpoint(model=model).write(str(path / "ckpt"))


def first_numbers(model):
    return [float(np.asarray(weight).flat[0]) for weight in model.get_weights()]


def missing_weights(status):
    """What is lacking beside seeds of other dropouts, and the optimizer that was not saved."""
    return [entry for entry in status.report().missing if "layer" in entry.key and "seed_generator" not in entry.key]


@pytest.mark.parametrize("how", ["before", "called", "predicts"])
@pytest.mark.parametrize("k", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("file", FILES)
class TestLayersWithoutWeights:
    @pytest.mark.parametrize(
        ("before", "now"),
        [
            ("plain", "dropout"),
            ("dropout first", "activations"),
            ("nested", "nested dropout"),
            ("nested dropout", "nested"),
        ],
    )
    def test_come_and_go(self, tmp_path, file, k, how, before, now):
        path = saved(file, before, tmp_path)
        model = k.Sequential(STACKS[now](k))
        if how == "before":
            use(model, "called")
        status = milepost.Checkpoint(model=model).read(path)
        use(model, "called" if how == "before" else how)
        assert first_numbers(model) == [0, 1, 2, 3, 4, 5]
        assert not missing_weights(status)


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
@pytest.mark.parametrize("k", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("file", FILES)
class TestLayersWithWeights:
    def restored(self, path, stack, k, built):
        model = k.Sequential(STACKS[stack](k))
        if built:
            use(model, "called")
        status = milepost.Checkpoint(model=model).read(path)
        return use(model, "called"), status

    def test_that_are_lacking_are_counted(self, tmp_path, file, k, built):
        model, status = self.restored(saved(file, "plain", tmp_path), "fewer", k, built)
        assert first_numbers(model) == [0, 1, 2, 3]
        with pytest.raises(milepost.UnmatchedError, match="layer_with_weights-2"):
            status.assert_consumed()

    def test_that_are_new_are_missing(self, tmp_path, file, k, built):
        model, status = self.restored(saved(file, "plain", tmp_path), "more", k, built)
        assert first_numbers(model)[:6] == [0, 1, 2, 3, 4, 5]
        with pytest.raises(milepost.UnmatchedError, match="layer_with_weights-3"):
            status.assert_existing_objects_matched()


@pytest.mark.parametrize("k", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_model_that_cannot_be_traced_has_its_weights_before_they_are_used(tmp_path, k):
    """Its layers are built one by one, each in the middle of the first call."""

    class Eager(k.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name="scale", shape=(4,), initializer="ones")
            super().build(shape)

        def call(self, x):
            return x * self.scale * float(np.sum(np.asarray(x)) > -1e9)

    def make(*more):
        return k.Sequential([Eager(), *more, Eager()])

    model = make()
    model(tf.constant(X))
    for number, variable in enumerate(model.weights):
        variable.assign(np.full(4, number + 2, np.float32))
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    live = make(k.layers.Dropout(0.5))
    milepost.Checkpoint(model=live).read(path)
    np.testing.assert_allclose(np.asarray(live(tf.constant(X))), X * 6, rtol=1e-6)


@pytest.mark.parametrize("k", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_model_that_is_saved_again_before_it_is_built_keeps_its_weights(tmp_path, k):
    first = saved("TensorFlow, Keras 2", "plain", tmp_path)
    waiting = milepost.Checkpoint(model=k.Sequential(STACKS["dropout"](k)))
    waiting.read(first)
    second = waiting.write(tmp_path / "again")
    model = k.Sequential(STACKS["dropout first"](k))
    status = milepost.Checkpoint(model=model).read(second)
    use(model, "called")
    assert first_numbers(model) == [0, 1, 2, 3, 4, 5]
    assert not missing_weights(status)

"""Optimizers that are of another generation, or of another class, than the one that was saved."""

import warnings

import numpy as np
import pytest

import milepost

tf = pytest.importorskip("tensorflow", reason="compares with TensorFlow's own checkpoints")
tf_keras = pytest.importorskip("tf_keras", reason="Keras 2 is a package of its own beside Keras 3")
legacy = tf_keras.optimizers.legacy

X = np.random.RandomState(0).randn(8, 3).astype("float32")
Y = np.random.RandomState(1).randn(8, 2).astype("float32")
OPTIMIZERS = {
    "adam": lambda o: o.Adam(0.01, beta_1=0.8),
    "amsgrad": lambda o: o.Adam(0.01, amsgrad=True),
    "momentum": lambda o: o.SGD(0.01, momentum=0.9, nesterov=True),
    "rmsprop": lambda o: o.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda o: o.Adagrad(0.1),
    "adadelta": lambda o: o.Adadelta(0.5),
    "adamax": lambda o: o.Adamax(0.01),
    "ftrl": lambda o: o.Ftrl(0.1),
}


class Training:
    def __init__(self, optimizer, k=tf_keras):
        inputs = k.Input((3,))
        self.model = k.Model(inputs, k.layers.Dense(2)(k.layers.Dense(4)(inputs)))
        self.optimizer = optimizer

    def losses(self, count):
        return [self._step() for _ in range(count)]

    def _step(self):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(X) - Y) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return float(loss)

    def saved(self, path):
        return tf.train.Checkpoint(model=self.model, optimizer=self.optimizer).write(str(path / "ckpt"))

    def restored(self, path):
        return milepost.Checkpoint(model=self.model, optimizer=self.optimizer).read(path)


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_newer_optimizer_goes_on_where_the_oldest_was(tmp_path, name, trained):
    old, new = Training(OPTIMIZERS[name](legacy)), Training(OPTIMIZERS[name](tf_keras.optimizers))
    old.losses(3)
    path = old.saved(tmp_path)
    new.losses(2 if trained else 0)
    status = new.restored(path)
    np.testing.assert_allclose(new.losses(3), old.losses(3), rtol=2e-5)
    status.assert_consumed()


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
def test_nadam_goes_on_exactly(tmp_path, trained):
    """It counts its steps in a number that TensorFlow does not save."""
    first, second = (Training(tf_keras.optimizers.Nadam(0.01)) for _ in range(2))
    first.losses(3)
    path = first.saved(tmp_path)
    second.losses(2 if trained else 0)
    second.restored(path)
    assert second.losses(3) == first.losses(3)


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize(
    ("old", "new"),
    [("Nadam", "Nadam"), ("Adam", "SGD"), ("RMSprop", "Adam"), ("Adam", "Nadam")],
)
def test_an_oldest_one_that_computes_otherwise_is_refused(tmp_path, old, new, trained):
    first, second = Training(getattr(legacy, old)(0.01)), Training(getattr(tf_keras.optimizers, new)(0.01))
    first.losses(3)
    path = first.saved(tmp_path)
    second.losses(2 if trained else 0)
    before = second.model.get_weights()
    with pytest.raises(milepost.MismatchError, match=r"from a Keras before 2\.11, and its class is another one"):
        second.restored(path)
    for now, then in zip(second.model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_an_oldest_one_takes_nothing_of_a_newer(tmp_path):
    new = Training(tf_keras.optimizers.Adam(0.01))
    new.losses(3)
    path = new.saved(tmp_path)
    old = Training(legacy.Adam(0.01))
    old.losses(1)
    with pytest.warns(milepost.UnrestoredWarning, match=r"the saved optimizer is of Keras 2\.11 or later"):
        status = old.restored(path)
    with pytest.raises(milepost.UnmatchedError):
        status.assert_existing_objects_matched()


@pytest.mark.parametrize("package", ["tf_keras", "keras"])
@pytest.mark.parametrize(("saved", "live"), [("Adam", "SGD"), ("SGD", "Adam"), ("RMSprop", "Adam"), ("Adamax", "Adam")])
def test_one_of_another_class_takes_no_lists(tmp_path, package, saved, live):
    k = pytest.importorskip(package, reason=f"{package} is not installed")
    if package == "keras" and k.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow saves Keras 3 on its own backend only")

    def make(name):
        arguments = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
        return Training(getattr(k.optimizers, name)(0.01, **arguments), k)

    first, second = make(saved), make(live)
    first.losses(3)
    second.losses(1)
    path = first.saved(tmp_path)
    before = [
        np.asarray(each)
        for each in (second.optimizer.variables() if package == "tf_keras" else second.optimizer.variables)
    ]
    with pytest.warns(milepost.UnrestoredWarning, match="the saved optimizer is of a different class"):
        status = second.restored(path)
    after = [
        np.asarray(each)
        for each in (second.optimizer.variables() if package == "tf_keras" else second.optimizer.variables)
    ]
    for now, then in zip(after, before, strict=True):
        if then.ndim:
            np.testing.assert_array_equal(now, then)
    with pytest.raises(milepost.UnmatchedError):
        status.assert_existing_objects_matched()


def test_one_of_the_same_class_is_not_warned_of(tmp_path):
    first, second = (Training(tf_keras.optimizers.AdamW(0.01)) for _ in range(2))
    first.losses(2)
    path = first.saved(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        status = second.restored(path)
        second.losses(1)
        status.assert_consumed()

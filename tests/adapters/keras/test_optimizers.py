"""Optimizers of Keras 3: their state arrives when they are built, and training goes on exactly."""

import numpy as np
import pytest

import milepost
from tests.adapters.keras.models import INPUTS, TARGETS, Subclassed, keras

BACKEND = keras.backend.backend()
optimizers = keras.optimizers
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.01),
    "momentum": lambda: optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.01),
    "amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01),
    "adamax": lambda: optimizers.Adamax(0.01),
    "nadam": lambda: optimizers.Nadam(0.01),
    "rmsprop": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "adagrad": lambda: optimizers.Adagrad(0.01),
    "adadelta": lambda: optimizers.Adadelta(0.5),
    "adafactor": lambda: optimizers.Adafactor(0.01),
    "ftrl": lambda: optimizers.Ftrl(0.01),
    "lion": lambda: optimizers.Lion(0.01),
    "lamb": lambda: optimizers.Lamb(0.01),
    "averaged": lambda: optimizers.Adam(0.01, use_ema=True),
    "accumulating": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "scheduled": lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2),
}

COMPILED = ("adam", "accumulating", "scaled") if BACKEND == "tensorflow" else tuple(OPTIMIZERS)
"""Those whose steps run compiled, as by default. The others' run eagerly: tracing takes most of a test's time."""


class Training:
    def __init__(self, optimizer):
        keras.utils.set_random_seed(1)
        self.model = Subclassed()
        self.optimizer = OPTIMIZERS[optimizer]()
        self.model.compile(self.optimizer, "mse", run_eagerly=optimizer not in COMPILED)
        self.checkpoint = milepost.Checkpoint(model=self.model)

    def losses(self, count):
        history = self.model.fit(INPUTS, TARGETS, epochs=count, batch_size=3, shuffle=False, verbose=0)
        return history.history["loss"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Gives, by optimizer, the checkpoint of a training of three epochs, the losses of the next three, and the training."""
    made = {}

    def get(name):
        if name not in made:
            training = Training(name)
            training.losses(3)
            path = training.checkpoint.write(tmp_path_factory.mktemp("trained") / "c")
            made[name] = path, training.losses(3), training
        return made[name]

    return get


@pytest.mark.parametrize("name", OPTIMIZERS)
class TestFit:
    @pytest.fixture(autouse=True)
    def _fits_twice(self, name):
        if (BACKEND, name) == ("jax", "averaged"):
            pytest.skip("Keras itself fails in the second fit with averages on JAX")

    def test_resumes_exactly_from_nothing(self, trained, name):
        path, expected, _ = trained(name)
        fresh = Training(name)
        status = fresh.checkpoint.read(path)
        assert fresh.losses(3) == expected
        status.assert_consumed()
        assert status.report().complete

    def test_resumes_exactly_after_a_save_right_after_the_restore(self, trained, tmp_path, name):
        path, expected, _ = trained(name)
        between = Training(name)
        between.checkpoint.read(path)
        again = between.checkpoint.write(tmp_path / "again")
        fresh = Training(name)
        status = fresh.checkpoint.read(again)
        assert fresh.losses(3) == expected
        status.assert_consumed()

    def test_a_trained_one_goes_back(self, trained, name):
        path, expected, training = trained(name)
        training.checkpoint.read(path).assert_consumed()
        assert training.losses(3) == expected


class TestGoingBackToBeforeTheOptimizerWasBuilt:
    @pytest.fixture(params=["adam", "momentum", "scaled"])
    def training(self, request):
        return Training(request.param)

    def test_state_that_stays_is_named_at_once(self, training, tmp_path):
        path = training.checkpoint.write(tmp_path / "c")
        training.losses(1)
        with pytest.warns(milepost.UnrestoredWarning, match="made after this checkpoint was saved") as caught:
            status = training.checkpoint.read(path).expect_partial()
        notes = {entry.key.partition("/.A")[0]: entry.note for entry in status.report().missing}
        stayed = [key for key, note in notes.items() if note]
        assert stayed == [key for key in notes if key.startswith("model/optimizer/")]
        assert all(f"  {key}/.A" in str(caught[0].message) for key in stayed)
        with pytest.raises(milepost.UnmatchedError):
            status.assert_existing_objects_matched()

    def test_gradients_that_were_accumulated_once_count_as_a_step(self, tmp_path):
        training = Training("accumulating")
        path = training.checkpoint.write(tmp_path / "c")
        training.losses(1)
        with pytest.warns(milepost.UnrestoredWarning, match="made after this checkpoint was saved"):
            training.checkpoint.read(path).expect_partial()

    @pytest.mark.filterwarnings("error")
    def test_state_before_the_first_step_is_no_matter(self, training, tmp_path):
        path = training.checkpoint.write(tmp_path / "c")
        training.model(INPUTS)
        training.optimizer.build(training.model.trainable_variables)
        training.checkpoint.read(path).expect_partial()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("left_out", [{"ignore": "model/optimizer"}, {"only": ["model/l1", "model/l2"]}])
    def test_an_optimizer_that_is_left_out_is_no_matter(self, training, tmp_path, left_out):
        path = training.checkpoint.write(tmp_path / "c")
        training.losses(1)
        training.checkpoint.read(path, **left_out).expect_partial()


@pytest.mark.skipif(BACKEND == "jax", reason="Keras itself cannot scale losses eagerly on JAX")
def test_the_first_loss_after_a_restore_is_scaled_by_the_saved_number(tmp_path):
    def made():
        keras.utils.set_random_seed(1)
        training = Training("scaled")
        training.model.compile(training.optimizer, "mse", run_eagerly=True)
        return training

    training = made()
    for _ in range(3):
        training.model.train_on_batch(INPUTS, TARGETS)
    path = training.checkpoint.write(tmp_path / "c")
    expected = [training.model.train_on_batch(INPUTS, TARGETS) for _ in range(3)]
    fresh = made()
    fresh.checkpoint.read(path)
    assert [fresh.model.train_on_batch(INPUTS, TARGETS) for _ in range(3)] == expected


def test_an_optimizer_built_by_hand_has_its_state(tmp_path):
    def made():
        weight = keras.Variable(np.ones((2, 3), "float32"), name="w")
        optimizer = optimizers.Adam(0.01)
        return weight, optimizer, milepost.Checkpoint(weight=weight, optimizer=optimizer)

    weight, optimizer, checkpoint = made()
    optimizer.apply([keras.ops.ones((2, 3))], [weight])
    path = checkpoint.write(tmp_path / "c")
    weight, fresh, checkpoint = made()
    checkpoint.read(path)
    fresh.build([weight])
    for ours, theirs in zip(fresh.variables, optimizer.variables, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(ours), keras.ops.convert_to_numpy(theirs))


def test_state_that_does_not_fit_is_an_error_of_build(tmp_path):
    weight = keras.Variable(np.ones((2, 3), "float32"))
    optimizer = optimizers.Adam(0.01)
    optimizer.build([weight])
    path = milepost.Checkpoint(optimizer=optimizer).write(tmp_path / "c")
    fresh = optimizers.Adam(0.01)
    milepost.Checkpoint(optimizer=fresh).read(path)
    with pytest.raises(milepost.MismatchError, match="_momentums/0"):
        fresh.build([keras.Variable(np.ones((5, 3), "float32"))])


def test_counters_are_int64_on_every_backend(tmp_path):
    path = milepost.Checkpoint(optimizer=optimizers.Adam(0.01)).write(tmp_path / "c")
    assert milepost.load_variable(path, "optimizer/_iterations/.ATTRIBUTES/VARIABLE_VALUE").dtype == np.int64


def test_a_counter_too_large_for_this_backend_is_refused(tmp_path):
    key = milepost.Checkpoint(n=milepost.Variable(np.int64(2**40)))
    path = key.write(tmp_path / "c")
    counter = keras.Variable(0, dtype="int32", trainable=False)
    with pytest.raises(milepost.MismatchError, match="does not fit"):
        milepost.Checkpoint(n=counter).read(path)
    assert int(counter.numpy()) == 0


def test_a_custom_optimizer_that_appends_to_a_list(tmp_path):
    class Momentum(optimizers.Optimizer):
        def build(self, variables):
            super().build(variables)
            self.traces = []
            for variable in variables:
                self.traces.append(self.add_variable_from_reference(variable, name="trace"))

        def update_step(self, gradient, variable, learning_rate):
            trace = self.traces[self._get_variable_index(variable)]
            self.assign(trace, 0.9 * trace + gradient)
            self.assign_sub(variable, keras.ops.cast(learning_rate, variable.dtype) * trace)

    def made():
        weight, optimizer = keras.Variable(np.ones(3, "float32")), Momentum(0.1)
        return weight, optimizer, milepost.Checkpoint(weight=weight, optimizer=optimizer)

    weight, optimizer, checkpoint = made()
    for _ in range(2):
        optimizer.apply([keras.ops.ones(3)], [weight])
    path = checkpoint.write(tmp_path / "c")
    optimizer.apply([keras.ops.ones(3)], [weight])
    fresh, other, checkpoint = made()
    status = checkpoint.read(path)
    other.apply([keras.ops.ones(3)], [fresh])
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(fresh), keras.ops.convert_to_numpy(weight))
    status.assert_consumed()

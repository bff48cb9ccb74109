"""Keras models that are restored before they were ever called."""

import copy

import numpy as np
import pytest

import milepost
from tests.adapters.keras.models import INPUTS, MODELS, TARGETS, Conditional, Subclassed, keras

BACKEND = keras.backend.backend()


def randomize(model):
    generator = np.random.default_rng(1)
    for variable in model.variables:
        if "seed" not in variable.path:
            variable.assign(generator.normal(size=variable.shape).astype("float32") ** 2)


def saved(tmp_path, make):
    model = make()
    model(INPUTS)
    randomize(model)
    return milepost.Checkpoint(model=model).write(tmp_path / "c"), np.asarray(keras.ops.convert_to_numpy(model(INPUTS)))


def restored(make, path):
    model = make()
    return model, milepost.Checkpoint(model=model).read(path)


def numpy(tensor):
    return np.asarray(keras.ops.convert_to_numpy(tensor))


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """Gives, by name of a model, its checkpoint and what it returns."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = saved(tmp_path_factory.mktemp(name), MODELS[name])
        return made[name]

    return get


@pytest.mark.parametrize("name", MODELS)
class TestFirstOutput:
    def test_of_a_call(self, output, name):
        path, expected = output(name)
        model, status = restored(MODELS[name], path)
        np.testing.assert_array_equal(numpy(model(INPUTS)), expected)
        status.assert_consumed()
        assert status.report().complete

    def test_of_predict(self, output, name):
        path, expected = output(name)
        model, status = restored(MODELS[name], path)
        np.testing.assert_allclose(model.predict(INPUTS, verbose=0), expected, rtol=1e-5, atol=1e-6)
        status.assert_consumed()

    def test_of_a_model_saved_again_before_its_first_call(self, output, tmp_path, name):
        path, expected = output(name)
        model, _ = restored(MODELS[name], path)
        again = milepost.Checkpoint(model=model).write(tmp_path / "again")
        del model
        other, status = restored(MODELS[name], again)
        np.testing.assert_array_equal(numpy(other(INPUTS)), expected)
        status.assert_consumed()

    def test_when_built_before(self, output, name):
        path, expected = output(name)
        model = MODELS[name]()
        model(INPUTS)
        milepost.Checkpoint(model=model).read(path).assert_consumed()
        np.testing.assert_array_equal(numpy(model(INPUTS)), expected)

    def test_no_hook_stays_behind(self, output, name):
        fresh = MODELS[name]()
        fresh(INPUTS)
        path, _ = output(name)
        model, _ = restored(MODELS[name], path)
        model(INPUTS)
        for plain, hooked in zip(fresh._flatten_layers(), model._flatten_layers(), strict=True):
            assert set(vars(plain)) == set(vars(hooked))
            assert type(vars(plain).get("_layers")) is type(vars(hooked).get("_layers"))


COMPILED = ("subclassed", "made_in_build", "sequential", "functional") if BACKEND == "tensorflow" else tuple(MODELS)
"""Models that are trained in compiled steps, as by default. The others' run eagerly: tracing takes most of the time."""


@pytest.mark.parametrize("name", [name for name in MODELS if name != "made_in_call"])
def test_fit_goes_on_as_if_nothing_had_happened(tmp_path, name):
    def make():
        model = MODELS[name]()
        model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=name not in COMPILED)
        return model

    def losses(model, epochs):
        history = model.fit(INPUTS, TARGETS, batch_size=3, epochs=epochs, shuffle=False, verbose=0)
        return history.history["loss"]

    model = make()
    losses(model, 2)
    path = milepost.Checkpoint(model=model).write(tmp_path / "c")
    expected = losses(model, 2)
    fresh, status = restored(make, path)
    assert losses(fresh, 2) == expected
    status.assert_consumed()


def test_a_model_that_cannot_be_traced_gets_its_values_too(tmp_path):
    path, expected = saved(tmp_path, Conditional)
    model, status = restored(Conditional, path)
    np.testing.assert_array_equal(numpy(model(INPUTS)), expected)
    status.assert_consumed()


def test_a_layer_attached_after_the_restore_gets_its_values(tmp_path):
    class Late(keras.Model):
        def call(self, x):
            return self.l1(x)

    def make():
        model = Late()
        model.l1 = keras.layers.Dense(2)
        return model

    path, expected = saved(tmp_path, make)
    model, status = restored(Late, path)
    model.l1 = keras.layers.Dense(2)
    np.testing.assert_array_equal(numpy(model(INPUTS)), expected)
    status.assert_consumed()


def test_a_save_refuses_what_came_unannounced_until_the_status_is_asked(tmp_path):
    def adapted():
        layer = keras.layers.Dense(2)
        layer(INPUTS)
        layer.enable_lora(2)
        return layer

    layer = adapted()
    randomize(layer)
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
    fresh = keras.layers.Dense(2)
    checkpoint = milepost.Checkpoint(layer=fresh)
    status = checkpoint.read(path)
    fresh(INPUTS)
    fresh.enable_lora(2)
    with pytest.raises(milepost.UntrackableError, match="layer/lora_kernel_a"):
        checkpoint.write(tmp_path / "again")
    status.assert_existing_objects_matched()
    again = checkpoint.write(tmp_path / "again")
    other = adapted()
    milepost.Checkpoint(layer=other).read(again).assert_consumed()
    np.testing.assert_array_equal(numpy(other(INPUTS)), numpy(layer(INPUTS)))


def test_build_delivers_without_a_call(tmp_path):
    def make():
        return keras.layers.Dense(2)

    layer = make()
    layer.build((None, 4))
    randomize(layer)
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "c")
    fresh = make()
    milepost.Checkpoint(layer=fresh).read(path)
    fresh.build((None, 4))
    np.testing.assert_array_equal(numpy(fresh.kernel), numpy(layer.kernel))


class TestMismatch:
    @pytest.fixture
    def path(self, tmp_path):
        return saved(tmp_path, Subclassed)[0]

    @staticmethod
    def wider():
        model = Subclassed()
        model.l2 = keras.layers.Dense(7)
        return model

    def test_is_raised_by_the_call_though_keras_swallows_it_at_first(self, path):
        model, _ = restored(self.wider, path)
        with pytest.raises(milepost.MismatchError, match="l2"):
            model(INPUTS)

    def test_is_raised_by_fit(self, path):
        model, _ = restored(self.wider, path)
        model.compile("sgd", "mse")
        with pytest.raises(milepost.MismatchError, match="l2"):
            model.fit(INPUTS, np.zeros((6, 7), "float32"), verbose=0)

    def test_is_raised_at_once_for_what_is_built(self, path):
        model = self.wider()
        model(INPUTS)
        before = [numpy(variable) for variable in model.variables]
        with pytest.raises(milepost.MismatchError, match="nothing was changed"):
            milepost.Checkpoint(model=model).read(path)
        for variable, value in zip(model.variables, before, strict=True):
            np.testing.assert_array_equal(numpy(variable), value)


class TestCopies:
    def test_a_deep_copy_of_a_waiting_model_carries_no_value_and_no_hook(self, tmp_path):
        path, expected = saved(tmp_path, MODELS["sequential"])
        model, _ = restored(MODELS["sequential"], path)
        other = copy.deepcopy(model)
        assert not np.array_equal(numpy(other(INPUTS)), expected)
        np.testing.assert_array_equal(numpy(model(INPUTS)), expected)

    def test_a_clone_of_a_waiting_model_is_fresh(self, tmp_path):
        path, expected = saved(tmp_path, MODELS["sequential_with_input"])
        model, _ = restored(MODELS["sequential_with_input"], path)
        assert not np.array_equal(numpy(keras.models.clone_model(model)(INPUTS)), expected)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_lower_precision_is_exact(tmp_path, policy):
    def make():
        with_policy = keras.dtype_policies.DTypePolicy(policy)
        return keras.Sequential([keras.layers.Dense(3, dtype=with_policy), keras.layers.Dense(2, dtype=with_policy)])

    path, expected = saved(tmp_path, make)
    model, status = restored(make, path)
    np.testing.assert_array_equal(numpy(model(INPUTS)), expected)
    status.assert_consumed()


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.function takes models of the TensorFlow backend only")
class TestTfFunction:
    def test_values_arrive_while_it_traces(self, tmp_path):
        import tensorflow as tf

        path, expected = saved(tmp_path, Subclassed)
        model, status = restored(Subclassed, path)
        call = tf.function(lambda x: model(x))
        np.testing.assert_allclose(call(INPUTS).numpy(), expected, rtol=1e-5)
        status.assert_consumed()

    def test_training_inside_one_resumes(self, tmp_path):
        import tensorflow as tf

        def make():
            model, optimizer = Subclassed(), keras.optimizers.Adam(0.01)

            @tf.function
            def step():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(INPUTS) - TARGETS) ** 2)
                variables = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                return loss

            return milepost.Checkpoint(model=model, optimizer=optimizer), step

        checkpoint, step = make()
        for _ in range(3):
            step()
        path = checkpoint.write(tmp_path / "c")
        expected = [float(step()) for _ in range(3)]
        fresh, step = make()
        status = fresh.read(path)
        assert [float(step()) for _ in range(3)] == expected
        status.assert_consumed()


def test_a_model_that_was_never_called_loses_nothing_when_it_is_saved(tmp_path):
    def make():
        return keras.Sequential(
            [keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.Sequential([keras.layers.Dense(1)])]
        )

    model = make()
    model(np.ones((2, 3), "float32"))
    path = milepost.Checkpoint(model=model).write(tmp_path / "1")
    checkpoint = milepost.Checkpoint(model=make())
    checkpoint.read(path)
    again = checkpoint.write(tmp_path / "2")
    assert len(milepost.list_variables(again)) == len(milepost.list_variables(path))
    fresh = make()
    status = milepost.Checkpoint(model=fresh).read(again)
    fresh(np.ones((2, 3), "float32"))
    status.assert_consumed()
    for restored, saved in zip(fresh.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(restored, saved)


class TestMetrics:
    """Keras resets compiled metrics before each batch, on TensorFlow before it makes them."""

    def compiled(self, seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.layers.Dense(1)])
        metrics = ["mae", keras.metrics.RootMeanSquaredError(), keras.metrics.R2Score()]
        model.compile(keras.optimizers.Adam(), "mse", metrics=metrics, weighted_metrics=["mse", "r2_score"])
        return model

    def test_values_that_come_after_a_reset_are_not_counted(self, tmp_path):
        data = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8.0)[:, None]
        model = self.compiled(1)
        model.train_on_batch(*data)
        path = milepost.Checkpoint(model=model).write(tmp_path / "c")
        expected = [model.train_on_batch(*data, return_dict=True) for _ in range(2)]
        model = self.compiled(2)
        status = milepost.Checkpoint(model=model).read(path)
        assert [model.train_on_batch(*data, return_dict=True) for _ in range(2)] == expected
        status.assert_consumed()

    @pytest.mark.parametrize("first", ["train", "predict"])
    def test_means_of_the_losses_of_outputs_that_come_after_a_reset_are_not_counted(self, tmp_path, first):
        def compiled(seed):
            keras.utils.set_random_seed(seed)
            inputs = keras.Input((3,))
            model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(inputs) for name in "ab"})
            model.compile("sgd", {"a": "mse", "b": "mae"})
            return model

        x, y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8.0)[:, None]
        model = compiled(1)
        model.train_on_batch(x, {"a": y, "b": y})
        path = milepost.Checkpoint(model=model).write(tmp_path / "c")
        expected = [model.train_on_batch(x, {"a": y, "b": y}) for _ in range(2)]
        model = compiled(2)
        status = milepost.Checkpoint(model=model).read(path)
        if first == "predict":
            model.predict_on_batch(x)
        assert [model.train_on_batch(x, {"a": y, "b": y}) for _ in range(2)] == expected
        status.assert_consumed()
        assert "reset_metrics" not in vars(model)

    def test_values_that_no_reset_came_before_are_counted(self, tmp_path):
        metric = keras.metrics.R2Score()
        metric.update_state(np.ones((2, 1)), np.zeros((2, 1)))
        path = milepost.Checkpoint(metric=metric).write(tmp_path / "c")
        metric, again = keras.metrics.R2Score(), metric
        milepost.Checkpoint(metric=metric).read(path)
        for each in (metric, again):
            each.update_state(np.arange(3.0)[:, None], np.ones((3, 1)))
        assert float(metric.result()) == float(again.result())

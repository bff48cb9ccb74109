"""When the callback saves, what it keeps, and what it refuses, in runs of one process."""

import importlib
import os
import threading
import warnings

import numpy as np
import pytest

import milepost
from milepost.retention import Best, EverySteps
from tests.manager.disks import Disk

keras = pytest.importorskip("keras", minversion="3", reason="these are runs of Keras 3")
callbacks = pytest.importorskip("milepost.keras", reason="these are runs of Keras 3")

X = np.random.RandomState(0).rand(16, 3).astype("float32")
Y = X.sum(axis=1, keepdims=True)


@pytest.fixture
def model():
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    net.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"], run_eagerly=True)
    return net


def fit(model, callback, *others, epochs=2, data=None, **arguments):
    data = callback.resumable(X, Y, batch_size=4, seed=1) if data is None else data
    return model.fit(data, epochs=epochs, verbose=0, callbacks=[*others, callback], **arguments)


class Interrupted(Exception):  # noqa: N818 - it is none
    pass


class Interrupt(keras.callbacks.Callback):  # type: ignore[name-defined]
    """Ends a run in the third batch."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            raise Interrupted


def numbers(callback):
    return [int(path.rpartition("-")[2]) for path in callback.manager.checkpoints]


def steps(callback):
    """The epochs and batches after which the run was saved."""
    return [(saved(path, "epoch"), saved(path, "batch")) for path in callback.manager.checkpoints]


def saved(path, name):
    return int(milepost.load_variable(path, f"{name}/.ATTRIBUTES/VARIABLE_VALUE"))


class TestSaving:
    def test_is_once_an_epoch_by_default(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path)
        fit(model, callback, epochs=2)
        assert steps(callback) == [(1, 0), (2, 0)]

    def test_is_every_so_many_epochs(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, every_epochs=2)
        fit(model, callback, epochs=5)
        assert steps(callback) == [(2, 0), (4, 0)]

    def test_is_every_so_many_batches_across_epochs(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, every_epochs=None, every_steps=3, max_to_keep=None)
        fit(model, callback, epochs=2)
        assert steps(callback) == [(0, 3), (1, 2)]

    def test_is_at_the_first_batch_after_the_time(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, every_epochs=None, every_seconds=1e-9, max_to_keep=None)
        fit(model, callback, epochs=1)
        assert steps(callback) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]

    def test_is_not_before_the_time(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, every_epochs=None, every_seconds=3600)
        fit(model, callback, epochs=1)
        assert steps(callback) == []

    def test_keeps_the_newest(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, max_to_keep=2)
        fit(model, callback, epochs=4)
        assert numbers(callback) == [3, 4]

    def test_does_not_change_what_metrics_say_afterwards(self, model, tmp_path):
        history = fit(model, callbacks.CheckpointCallback(tmp_path))
        assert float(model.get_metrics_result()["loss"]) == history.history["loss"][-1]

    def test_takes_other_objects_along(self, model, tmp_path):
        extra = milepost.Variable(1.0)
        fit(model, callbacks.CheckpointCallback(tmp_path, objects={"extra": extra}))
        extra.assign(2.0)
        fit(model, callbacks.CheckpointCallback(tmp_path, objects={"extra": extra}))
        assert float(extra) == 1.0


class TestBest:
    VALUES = (3.0, 1.0, 2.0, 0.5)

    def run(self, model, directory, mode="min", **options):
        class Judge(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                logs["value"] = TestBest.VALUES[epoch]

        callback = callbacks.CheckpointCallback(directory, monitor="value", mode=mode, **options)
        fit(model, callback, Judge(), epochs=4)
        return callback

    def test_is_the_epoch_with_the_least(self, model, tmp_path):
        assert saved(self.run(model, tmp_path).best_checkpoint, "epoch") == 4

    def test_is_the_epoch_with_the_most(self, model, tmp_path):
        assert saved(self.run(model, tmp_path, "max").best_checkpoint, "epoch") == 1

    def test_are_as_many_as_wanted(self, model, tmp_path):
        self.run(model, tmp_path, keep_best=2)
        kept = milepost.get_checkpoint_state(tmp_path / "best").all_model_checkpoint_paths
        assert [saved(path, "epoch") for path in kept] == [2, 4]

    def test_outlives_the_newest(self, model, tmp_path):
        callback = self.run(model, tmp_path, "max", max_to_keep=1)
        assert numbers(callback) == [5]
        assert milepost.tensorflow1.checkpoint_exists(callback.best_checkpoint)

    def test_is_remembered_by_the_next_process(self, model, tmp_path, monkeypatch):
        self.run(model, tmp_path)
        monkeypatch.setattr(TestBest, "VALUES", (*self.VALUES, 0.7))
        callback = callbacks.CheckpointCallback(tmp_path, monitor="loss", mode="max")
        fit(model, callback, epochs=4)
        assert saved(callback.best_checkpoint, "epoch") == 4

    def test_asks_the_metric_for_its_direction(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, monitor="loss")
        losses = fit(model, callback, epochs=3).history["loss"]
        assert saved(callback.best_checkpoint, "epoch") == 1 + int(np.argmin(losses))

    def test_needs_a_mode_for_names_that_say_nothing(self, model, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="mode='auto'"):
            self.run(model, tmp_path, "auto")

    def test_needs_the_metric_in_the_logs(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, monitor="val_loss")
        with pytest.raises(milepost.UnsupportedError, match="found: loss, mae"):
            fit(model, callback)


class TestKeep:
    def run(self, model, directory, keep, epochs=4, **options):
        class Judge(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                logs["value"] = (3.0, 1.0, 2.0, 5.0, 0.5)[epoch]

        callback = callbacks.CheckpointCallback(directory, max_to_keep=1, keep=keep, **options)
        fit(model, callback, Judge(), epochs=epochs)
        return callback

    def test_the_best_epochs_stay_beside_the_newest(self, model, tmp_path):
        callback = self.run(model, tmp_path, Best(2, by="value", mode="min"))
        assert steps(callback) == [(2, 0), (3, 0), (4, 0)]
        assert saved(callback.best_checkpoint, "epoch") == 2

    def test_any_policy_is_taken(self, model, tmp_path):
        assert steps(self.run(model, tmp_path, EverySteps(2), epochs=5)) == [(2, 0), (4, 0), (5, 0)]

    def test_parts_of_epochs_are_not_compared_with_epochs(self, model, tmp_path):
        callback = self.run(model, tmp_path, Best(9, by="loss", mode="min"), every_steps=3)
        assert steps(callback) == [(1, 0), (2, 0), (3, 0), (4, 0)]

    def test_a_resumed_run_knows_the_metrics_of_the_first_process(self, model, tmp_path):
        self.run(model, tmp_path, Best(1, by="value", mode="min"), epochs=3)
        callback = self.run(model, tmp_path, Best(1, by="value", mode="min"), epochs=4)
        assert steps(callback) == [(2, 0), (4, 0)]

    def test_it_may_stand_beside_monitor(self, model, tmp_path):
        callback = self.run(model, tmp_path, Best(1, by="value", mode="max"), monitor="value", mode="min")
        assert steps(callback) == [(4, 0)]
        assert saved(callback.best_checkpoint, "epoch") == 2

    def test_without_a_policy_no_metrics_are_saved(self, model, tmp_path):
        callback = self.run(model, tmp_path, None)
        assert callback.best_checkpoint is None
        assert milepost.load_checkpoint(callback.manager.latest_checkpoint).metrics() is None

    def test_what_is_no_policy_is_refused_when_the_callback_is_made(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="Best"):
            callbacks.CheckpointCallback(tmp_path, keep="val_loss")


class TestResuming:
    def test_trains_so_many_epochs_in_all(self, model, tmp_path):
        fit(model, callbacks.CheckpointCallback(tmp_path), epochs=2)
        assert fit(model, callbacks.CheckpointCallback(tmp_path), epochs=3).epoch == [0, 1, 2]

    def test_of_a_finished_run_trains_nothing(self, model, tmp_path):
        before = fit(model, callbacks.CheckpointCallback(tmp_path)).history
        weights = model.get_weights()
        assert fit(model, callbacks.CheckpointCallback(tmp_path)).history == before
        np.testing.assert_equal(model.get_weights(), weights)

    def test_takes_what_was_saved_and_not_what_the_model_holds(self, model, tmp_path):
        fit(model, callbacks.CheckpointCallback(tmp_path))
        weights = model.get_weights()
        model.set_weights([np.full_like(weight, 7) for weight in weights])
        fit(model, callbacks.CheckpointCallback(tmp_path))
        np.testing.assert_equal(model.get_weights(), weights)

    def test_lets_other_callbacks_count_the_batches_of_the_epoch(self, model, tmp_path):
        """They see those that were trained before the interruption once more, and can tell."""
        seen = []

        class Counter(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                seen.append((batch, callback.is_catching_up))

        callback = callbacks.CheckpointCallback(tmp_path, every_steps=2)
        with pytest.raises(Interrupted):
            fit(model, callback, Interrupt(), epochs=1)
        callback = callbacks.CheckpointCallback(tmp_path, every_steps=2)
        fit(model, callback, Counter(), epochs=1)
        assert seen == [(0, True), (1, True), (2, False), (3, False)]

    def test_fails_with_another_number_of_batches(self, model, tmp_path):
        fit(model, callbacks.CheckpointCallback(tmp_path))
        callback = callbacks.CheckpointCallback(tmp_path)
        data = callback.resumable(X, Y, batch_size=2)
        with pytest.raises(milepost.MismatchError, match="a different number of batches"):
            fit(model, callback, data=data, epochs=3)

    def test_fails_with_data_that_does_not_come_out_again(self, model, tmp_path):
        class Changing:
            def __iter__(self):
                for start in range(0, 16, 4):
                    Changing.count += 1
                    yield X[start : start + 4] * Changing.count, Y[start : start + 4]

        Changing.count = 0
        callback = callbacks.CheckpointCallback(tmp_path, every_steps=2)
        with pytest.raises(Interrupted):
            fit(model, callback, Interrupt(), data=callback.resumable(Changing()))
        callback = callbacks.CheckpointCallback(tmp_path, every_steps=2)
        with pytest.raises(
            Exception, match="did not produce the same batches"
        ):  # TensorFlow makes it an error of its own
            fit(model, callback, data=callback.resumable(Changing()))

    def test_fails_with_a_model_that_was_not_saved(self, model, tmp_path):
        fit(model, callbacks.CheckpointCallback(tmp_path))
        other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        other.compile(optimizer="sgd", loss="mse", run_eagerly=True)
        with pytest.raises((milepost.MismatchError, milepost.UnmatchedError)):
            fit(other, callbacks.CheckpointCallback(tmp_path))


class TestData:
    def test_that_is_not_wrapped_is_refused_for_saves_within_epochs(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, every_steps=2)
        with pytest.raises(milepost.UnsupportedError, match="resumable"):
            fit(model, callback, data=X, y=Y)

    def test_that_is_not_what_was_wrapped_is_refused(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, every_steps=2)
        callback.resumable(X, Y)
        with pytest.raises(milepost.UnsupportedError, match="was not given the data"):
            fit(model, callback, data=X, y=Y, batch_size=4)

    def test_that_is_not_wrapped_is_saved_between_epochs(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path)
        fit(model, callback, data=X, y=Y)
        assert len(numbers(callback)) == 2

    def test_of_generators_is_refused(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="cannot be read twice"):
            callbacks.CheckpointCallback(tmp_path).resumable((X, Y) for _ in range(3))

    def test_that_changes_itself_after_epochs_is_refused(self, tmp_path):
        class Reshuffled(keras.utils.PyDataset):
            def __len__(self):
                return 4

            def __getitem__(self, number):
                return X, Y

            def on_epoch_end(self):
                np.random.shuffle(X)

        with pytest.raises(milepost.UnsupportedError, match="on_epoch_end"):
            callbacks.CheckpointCallback(tmp_path).resumable(Reshuffled())

    def test_of_different_lengths_is_refused(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="same length"):
            callbacks.CheckpointCallback(tmp_path).resumable(X, Y[:5])

    def test_with_targets_beside_an_iterable_is_refused(self, tmp_path):
        with pytest.raises(milepost.UnsupportedError, match="only with arrays"):
            callbacks.CheckpointCallback(tmp_path).resumable([(X, Y)].__iter__(), Y)

    def test_in_dicts_and_with_weights_is_batched_alike(self, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path)
        data = callback.resumable({"a": X, "b": X + 1}, Y, np.arange(16.0), batch_size=8, seed=3)
        for inputs, targets, weights in data.get_numpy_iterator():
            rows = weights.astype(int)
            np.testing.assert_array_equal(inputs["a"], X[rows])
            np.testing.assert_array_equal(inputs["b"], X[rows] + 1)
            np.testing.assert_array_equal(targets, Y[rows])
            assert weights.dtype == np.float32

    def test_of_datasets_that_shuffle_without_a_seed_is_warned_of(self, tmp_path):
        tf = pytest.importorskip("tensorflow", reason="these are datasets of TensorFlow")
        tf.random.set_seed(None)
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(4).batch(4)
        with pytest.warns(milepost.MilepostWarning, match="seed"):
            callbacks.CheckpointCallback(tmp_path).resumable(dataset)

    def test_of_datasets_that_repeat_a_shuffle_is_warned_of(self, tmp_path):
        tf = pytest.importorskip("tensorflow", reason="these are datasets of TensorFlow")
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(4, seed=1).repeat().batch(4)
        with pytest.warns(milepost.MilepostWarning, match="before shuffle"):
            callbacks.CheckpointCallback(tmp_path).resumable(dataset)


class TestSigterm:
    def test_has_no_effect_in_other_threads_and_says_so(self, model, tmp_path):
        caught = []

        def run():
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                fit(model, callbacks.CheckpointCallback(tmp_path, on_sigterm=True))
            caught.extend(found)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert any("main thread" in str(each.message) for each in caught)


@pytest.mark.parametrize("options", [{"every_epochs": 0}, {"every_steps": -1}, {"every_seconds": 0}, {"mode": "least"}])
def test_impossible_options_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match="must be"):
        callbacks.CheckpointCallback(tmp_path, monitor="loss", **options)


def test_names_that_the_run_uses_are_refused(tmp_path):
    with pytest.raises(ValueError, match="model"):
        callbacks.CheckpointCallback(tmp_path, objects={"model": milepost.Variable(0)})


def test_the_directory_may_be_any_path(model, tmp_path):
    fit(model, callbacks.CheckpointCallback(os.fspath(tmp_path / "made" / "here")))
    assert milepost.latest_checkpoint(tmp_path / "made" / "here")


class TestKeras2:
    @pytest.fixture
    def keras2(self):
        return pytest.importorskip("tf_keras", reason="these are layers of Keras 2")

    def run(self, keras2, directory):
        callbacks2 = importlib.import_module("milepost.tf_keras")
        net = keras2.Sequential([keras2.layers.Dense(4), keras2.layers.Dropout(0.5), keras2.layers.Dense(1)])
        net.compile(optimizer="sgd", loss="mse", run_eagerly=True)
        fit(net, callbacks2.CheckpointCallback(directory), epochs=1)

    def test_is_warned_of_random_numbers_that_nobody_can_save(self, keras2, tmp_path):
        with pytest.warns(milepost.MilepostWarning, match="different random numbers in dropout"):
            self.run(keras2, tmp_path)

    def test_is_not_warned_of_those_that_are_saved(self, keras2, tmp_path):
        keras2.backend.experimental.enable_tf_random_generator()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", milepost.MilepostWarning)
                self.run(keras2, tmp_path)
        finally:
            keras2.backend.experimental.disable_tf_random_generator()


@pytest.mark.filterwarnings("ignore:.*(the run goes on|not finite|passed over)")
class TestFailures:
    """What is passed to the managers: failed saves, states that are not finite, and a function that is told of each checkpoint."""

    def test_the_run_goes_on_through_failed_saves(self, model, tmp_path):
        disk = Disk()
        options = milepost.CheckpointOptions(storage=disk)
        callback = callbacks.CheckpointCallback(
            tmp_path, every_steps=1, max_to_keep=1, options=options, on_failure=milepost.Tolerate(saves=9)
        )
        trouble = At(2, lambda: setattr(disk, "trouble", "full")), At(5, disk.recover)
        fit(model, callback, *trouble)
        assert callback.manager.health.state == "good"
        assert steps(callback) == [(2, 0)]

    def test_a_run_whose_last_save_has_failed_ends_in_an_error(self, model, tmp_path):
        disk = Disk()
        options = milepost.CheckpointOptions(storage=disk)
        callback = callbacks.CheckpointCallback(
            tmp_path, every_steps=1, options=options, on_failure=milepost.Tolerate(saves=99)
        )
        with pytest.raises(milepost.StorageError, match="the last save has failed"):
            fit(model, callback, At(2, lambda: setattr(disk, "trouble", "full")))

    def test_a_run_that_became_nan_continues_from_its_last_finite_checkpoint(self, model, tmp_path):
        told = []

        def callback():
            return callbacks.CheckpointCallback(
                tmp_path,
                every_steps=1,
                max_to_keep=1,
                nonfinite=milepost.KeepLastFinite(restore=True),
                on_committed=told.append,
            )

        def poison():
            model.layers[0].kernel.assign(np.full((3, 1), np.nan))

        with pytest.raises(Interrupted):
            fit(model, callback(), At(2, poison), Interrupt())
        assert [bool(each.nonfinite) for each in told] == [False, True]
        model.layers[0].kernel.assign(np.zeros((3, 1)))
        again = callback()
        fit(model, again)
        assert np.isfinite(model.layers[0].kernel.numpy()).all()
        assert [each.nonfinite for each in told[2:]] == [()] * (len(told) - 2)

    def test_files_are_saved_with_each_checkpoint_also_the_best(self, model, tmp_path):
        callback = callbacks.CheckpointCallback(tmp_path, monitor="loss", files={"vocab": b"a b"})
        fit(model, callback)
        assert [callback.manager.files(step) for step in callback.manager.steps] == [{"vocab": b"a b"}] * len(
            callback.manager.steps
        )
        assert milepost.load_checkpoint(tmp_path / "best").files() == {"vocab": b"a b"}

    @pytest.mark.parametrize("name", ["on_failure", "nonfinite", "on_committed", "files"])
    def test_arguments_are_checked_at_once(self, tmp_path, name):
        with pytest.raises(milepost.UnsupportedError, match=name):
            callbacks.CheckpointCallback(tmp_path, **{name: 3})


class At(keras.callbacks.Callback):  # type: ignore[name-defined]
    """Calls a function before a batch of the run, from 1 on."""

    def __init__(self, batch, function):
        super().__init__()
        self.batch, self.function, self.seen = batch, function, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.seen += 1
        if self.seen == self.batch:
            self.function()

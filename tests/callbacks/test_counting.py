"""Batches are counted as they were trained, whatever Keras counts, and resumed after each of them."""

import pytest

import milepost
from tests.callbacks.runs import Interrupted, Trainer, X, Y, computed, trainer, weights  # noqa: F401 - fixtures


class Unsized:
    """Passes over four batches, whose number nobody is told."""

    def __iter__(self):
        for start in range(0, 32, 8):
            yield X[start : start + 8], Y[start : start + 8]


def saved(callback):
    return [
        tuple(int(milepost.load_variable(path, f"{name}/.ATTRIBUTES/VARIABLE_VALUE")) for name in ("epoch", "step"))
        for path in callback.manager.checkpoints
    ]


def dataset(keras):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_steps_that_do_not_divide_an_epoch(trainer, tmp_path, kind):  # noqa: F811
    if trainer.is_keras_3 and trainer.keras.backend.backend() == "torch":
        pytest.skip("this trainer runs one batch at a time")
    callback = trainer.callback(tmp_path, max_to_keep=None)
    data = callback.resumable(dataset(trainer.keras)) if kind == "dataset" else None
    trainer.fit(trainer.model(is_compiled=True, steps_per_execution=3), callback, data=data, epochs=2)
    assert saved(callback) == [(1, 4), (2, 8)]


def unknown_length(keras, batches):
    return dataset(keras).unbatch().filter(lambda x, y: x[0] >= 0).batch(32 // batches)


@pytest.fixture
def keras_3():
    """Keras 3 on TensorFlow: it alone groups steps over data of unknown length and does not tell how many there were."""
    found = Trainer("keras")
    if not found.is_keras_3 or found.keras.backend.backend() != "tensorflow":
        pytest.skip("the other trainers refuse this, or read one batch at a time")
    return found


class TestStepsBeyondTheEndOfDataOfUnknownLength:
    @pytest.mark.parametrize("wrapped", [True, False])
    def test_are_not_counted(self, keras_3, tmp_path, wrapped):
        callback = keras_3.callback(tmp_path, max_to_keep=None)
        data = unknown_length(keras_3.keras, 4)
        data = callback.resumable(data) if wrapped else data
        keras_3.fit(keras_3.model(is_compiled=True, steps_per_execution=3), callback, data=data, epochs=2)
        assert saved(callback) == [(1, 4), (2, 8)]

    def test_are_not_counted_with_accumulated_gradients(self, keras_3, tmp_path):
        callback, model = keras_3.callback(tmp_path, max_to_keep=None), keras_3.model()
        optimizer = keras_3.keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
        model.compile(optimizer=optimizer, loss="mse", steps_per_execution=3)
        keras_3.fit(model, callback, data=callback.resumable(unknown_length(keras_3.keras, 4)), epochs=2)
        assert saved(callback) == [(1, 4), (2, 8)]

    @pytest.mark.parametrize("step", [2, 3, 5])
    def test_are_not_resumed(self, keras_3, tmp_path, computed, step):  # noqa: F811
        def run(directory, *others):
            model, callback = (
                keras_3.model(is_compiled=True, steps_per_execution=3),
                keras_3.callback(tmp_path / directory, every_steps=1),
            )
            data = callback.resumable(unknown_length(keras_3.keras, 4))
            history = keras_3.fit(model, callback, *others, data=data, epochs=3)
            return history.history, weights(model), saved(callback)

        begun = []

        def count(batch):
            begun.append(batch)
            if len(begun) == step:
                raise Interrupted

        expected = computed("not resumed", lambda: run("whole"))
        with pytest.raises(Interrupted):
            run("parts", keras_3.on("on_train_batch_begin", count))
        assert run("parts") == expected


def test_parts_of_a_pass(trainer, tmp_path):  # noqa: F811
    callback = trainer.callback(tmp_path, max_to_keep=None)
    trainer.fit(trainer.model(), callback, epochs=2, steps_per_epoch=3)
    # Keras 3 ends an epoch with a pass whose length it knows; Keras 2 goes on with the next one.
    assert saved(callback) == [(1, 3), (2, 4 if trainer.is_keras_3 else 6)]


def test_an_epoch_that_is_longer_than_a_pass(trainer, tmp_path):  # noqa: F811
    callback = trainer.callback(tmp_path, max_to_keep=None)
    trainer.fit(trainer.model(), callback, epochs=1, steps_per_epoch=7)
    assert saved(callback) == [(1, 4 if trainer.is_keras_3 else 7)]


@pytest.mark.parametrize("steps", [None, 3], ids=["whole passes", "parts of a pass"])
@pytest.mark.parametrize("batches", [2, 3, 4, 5, 7])
def test_data_of_unknown_length_is_resumed_after_each_batch(trainer, tmp_path, computed, batches, steps):  # noqa: F811
    is_compiled = batches == 3  # one is enough

    def run(directory, *others):
        model, callback = trainer.model(is_compiled=is_compiled), trainer.callback(tmp_path / directory, every_steps=1)
        history = trainer.fit(
            model, callback, *others, data=callback.resumable(Unsized()), epochs=4, steps_per_epoch=steps
        )
        return history.history, weights(model)

    seen = []

    def count(batch):
        seen.append(batch)
        if len(seen) == batches:
            raise Interrupted

    expected = computed((trainer.name, steps, is_compiled), lambda: run("whole"))
    try:
        run("parts", trainer.on("on_train_batch_begin", count))
    except Interrupted:
        assert run("parts") == expected
    else:  # Keras 2 ends a run whose data has come to its end
        assert len(seen) < batches


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize("batches", [3, 4, 6])
def test_passes_that_end_within_epochs_are_resumed_after_each_batch(trainer, tmp_path, computed, batches, kind):  # noqa: F811
    def run(directory, *others):
        model, callback = trainer.model(), trainer.callback(tmp_path / directory, every_steps=1)
        data = callback.resumable(dataset(trainer.keras)) if kind == "dataset" else None
        history = trainer.fit(model, callback, *others, data=data, epochs=4, steps_per_epoch=3)
        return history.history, weights(model), saved(callback)

    seen = []

    def count(batch):
        seen.append(batch)
        if len(seen) == batches:
            raise Interrupted

    expected = computed((trainer.name, "within", kind), lambda: run("whole"))
    try:
        run("parts", trainer.on("on_train_batch_begin", count))
    except Interrupted:
        pass
    else:  # Keras 2 ends a run whose data has come to its end
        assert len(seen) < batches
    assert run("parts") == expected


@pytest.mark.parametrize("batch", [0, 2])
def test_the_rest_of_an_epoch_that_was_cut_short_is_trained(trainer, tmp_path, computed, batch):  # noqa: F811
    """Of data of unknown length, too, where nobody can tell whether there is a rest."""

    def run(directory, *others):
        model, callback = trainer.model(), trainer.callback(tmp_path / directory)
        history = trainer.fit(model, callback, *others, data=callback.resumable(Unsized()))
        return history.history, weights(model)

    class Stop(trainer.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, number, logs=None):
            if (self.epoch, number) == (1, batch):
                self.model.stop_training = True

    run("parts", Stop())
    assert run("parts") == computed((trainer.name, "rest"), lambda: run("whole"))

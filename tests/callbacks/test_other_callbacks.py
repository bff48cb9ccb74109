"""What other callbacks have counted and remembered goes on in the next process, wherever they are in the list."""

import numpy as np
import pytest

import milepost
from tests.callbacks.runs import Interrupted, X, Y, computed, trainer, weights  # noqa: F401 - fixtures


def plateau(keras):
    return keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=1, min_delta=10.0)


def schedule(keras):
    return keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)


def stopping(keras):
    return keras.callbacks.EarlyStopping(monitor="loss", patience=2, min_delta=10.0, restore_best_weights=True)


def own(keras):
    class Decay(keras.callbacks.Callback):
        """Changes the learning rate by what it has counted, in attributes of several kinds."""

        def __init__(self):
            super().__init__()
            self.seen = []
            self.total = {"batches": 0}
            self.draws = np.random.default_rng(3)
            self.scale = None

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append(float(logs["loss"]))
            self.total["batches"] += 1
            self.scale = np.full(2, len(self.seen))
            rate = 0.01 / self.total["batches"] + 1e-4 * self.draws.random() + 1e-6 * float(self.scale.sum())
            self.model.optimizer.learning_rate = rate

    return Decay()


def stateful(keras):
    class Stateful(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self._hidden = [0]

        def get_state(self):
            return {"count": self._hidden[0]}

        def set_state(self, state):
            self._hidden[0] = state["count"]

        def on_train_batch_end(self, batch, logs=None):
            self._hidden[0] += 1
            self.model.optimizer.learning_rate = 0.01 / self._hidden[0]

    return Stateful()


def swapping(keras):
    return keras.callbacks.SwapEMAWeights(swap_on_epoch=True)


MAKERS = [plateau, schedule, stopping, own, stateful, swapping]


def model_for(trainer, make):  # noqa: F811
    model = trainer.model(is_compiled=make is own)
    if make is swapping:
        if not trainer.is_keras_3:
            pytest.skip("Keras 2 has no such callback")
        model.compile(trainer.keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.9), "mse", run_eagerly=True)
    return model


@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_run_in_parts_ends_as_a_whole_one(trainer, make, last, tmp_path, computed):  # noqa: F811
    """Interrupted in the middle of an epoch, and then given more epochs."""

    def run(directory, epochs, *others):
        model = model_for(trainer, make)
        callback = trainer.callback(tmp_path / directory, every_steps=3)
        history = trainer.fit(
            model, callback, *others, make(trainer.keras), epochs=epochs, last=last, validation_data=(X, Y)
        )
        return history.history, weights(model)

    steps = []

    def count(batch):
        steps.append(batch)
        if len(steps) == 8:
            raise Interrupted

    with pytest.raises(Interrupted):
        run("parts", 3, trainer.on("on_train_batch_end", count))
    with pytest.warns(milepost.errors.MilepostWarning, match="the callbacks have changed"):
        run("parts", 3)
    assert run("parts", 5) == computed((trainer.name, make), lambda: run("whole", 5))


class TestOfARunThatAnotherCallbackEnded:
    def run(self, trainer, directory, epochs=9, **options):  # noqa: F811
        model = trainer.model()
        steps = []
        history = trainer.fit(
            model,
            trainer.callback(directory, **options),
            stopping(trainer.keras),
            trainer.on("on_train_batch_end", steps.append),
            epochs=epochs,
        )
        return len(steps), history.epoch, history.history, weights(model)

    def test_nothing_is_trained(self, trainer, tmp_path):  # noqa: F811
        first = self.run(trainer, tmp_path, every_epochs=5)
        with pytest.warns(milepost.errors.MilepostWarning, match=r"ended this run .* continue_ended=True"):
            again = self.run(trainer, tmp_path, every_epochs=5)
        assert first[0] == 4 * len(first[1]) < 36
        assert again == (0, *first[1:])

    def test_it_goes_on_if_that_is_wanted(self, trainer, tmp_path):  # noqa: F811
        epochs = self.run(trainer, tmp_path)[1]
        assert len(self.run(trainer, tmp_path, continue_ended=True)[1]) > len(epochs)

    def test_one_that_was_ended_within_an_epoch_goes_on(self, trainer, tmp_path):  # noqa: F811
        def stop(batch):
            model.stop_training = batch == 2

        model = trainer.model()
        trainer.fit(model, trainer.callback(tmp_path), trainer.on("on_train_batch_end", stop))
        assert trainer.fit(trainer.model(), trainer.callback(tmp_path)).epoch == [0, 1, 2]


class TestSettings:
    def test_are_those_of_the_program(self, trainer, tmp_path):  # noqa: F811
        EarlyStopping = trainer.keras.callbacks.EarlyStopping  # noqa: N806
        trainer.fit(trainer.model(), trainer.callback(tmp_path), EarlyStopping("loss", patience=7), epochs=1)
        later = EarlyStopping("loss", patience=9)
        trainer.fit(trainer.model(), trainer.callback(tmp_path), later, epochs=2)
        assert later.patience == 9


class TestWarnings:
    def test_name_what_cannot_be_saved_once(self, trainer, tmp_path):  # noqa: F811
        callback = trainer.on("on_train_batch_end", lambda _: setattr(callback, "thing", lambda: None))
        with pytest.warns(milepost.errors.MilepostWarning, match=r"On\.thing changed .* cannot be saved") as caught:
            trainer.fit(trainer.model(), trainer.callback(tmp_path), callback)
        assert sum("cannot be saved" in str(each.message) for each in caught) == 1

    def test_name_callbacks_that_are_new_or_gone(self, trainer, tmp_path):  # noqa: F811
        trainer.fit(trainer.model(), trainer.callback(tmp_path), plateau(trainer.keras), epochs=1)
        with pytest.warns(milepost.errors.MilepostWarning, match=r"LearningRateScheduler is new .* of ReduceLROn"):
            trainer.fit(trainer.model(), trainer.callback(tmp_path), schedule(trainer.keras), epochs=2)

    def test_name_files_that_begin_anew(self, trainer, tmp_path):  # noqa: F811
        def run(epochs):
            logger = trainer.keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
            trainer.fit(trainer.model(), trainer.callback(tmp_path / "run"), logger, epochs=epochs)

        run(1)
        with pytest.warns(milepost.errors.MilepostWarning, match="append=True"):
            run(2)

    @pytest.mark.filterwarnings("error::milepost.errors.MilepostWarning")
    def test_are_not_given_of_callbacks_of_keras(self, trainer, tmp_path):  # noqa: F811
        callbacks = trainer.keras.callbacks
        for epochs in (1, 2):
            others = [
                *(callbacks.EarlyStopping("loss"), callbacks.CSVLogger(str(tmp_path / "log.csv"), append=True)),
                *(plateau(trainer.keras), callbacks.TerminateOnNaN(), callbacks.LambdaCallback()),
                callbacks.ModelCheckpoint(str(tmp_path / "best.weights.h5"), "loss", save_weights_only=True),
            ]
            trainer.fit(trainer.model(), trainer.callback(tmp_path / "run"), *others, epochs=epochs)

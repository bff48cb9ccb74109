"""What would go wrong in silence or late is refused before anything is trained."""

import numpy as np
import pytest

import milepost
from tests.callbacks.runs import X, Y, trainer, weights  # noqa: F401 - a fixture

CLASSES = (X.sum(axis=1) > 1.5).astype("int64")[:, None]
WEIGHTS = {0: 1.0, 1: 7.0}


@pytest.fixture
def count(trainer):  # noqa: F811
    """How many steps were trained, and the callback that counts them."""
    steps = []
    return steps, trainer.on("on_train_batch_begin", steps.append)


class TestArgumentsBesideWrappedData:
    @pytest.mark.parametrize(
        "argument",
        [{"class_weight": WEIGHTS}, {"shuffle": False}, {"y": Y}, {"batch_size": 4}, {"sample_weight": np.ones(32)}],
        ids=lambda argument: next(iter(argument)),
    )
    def test_are_refused(self, trainer, count, tmp_path, argument):  # noqa: F811
        model = trainer.model()
        # Keras itself refuses some of them.
        with pytest.raises((milepost.UnsupportedError, ValueError), match=next(iter(argument))):
            trainer.fit(model, trainer.callback(tmp_path), count[1], **argument)
        assert not count[0]

    def test_may_say_the_same(self, trainer, tmp_path):  # noqa: F811
        callback = trainer.callback(tmp_path)
        data = callback.resumable(X, Y, shuffle=False)
        assert trainer.fit(trainer.model(), callback, data=data, epochs=1, shuffle=False).epoch == [0]

    def test_data_of_another_callback_is_refused(self, trainer, count, tmp_path):  # noqa: F811
        other = trainer.callback(tmp_path / "other")
        data = other.resumable(X, Y)
        with pytest.raises(milepost.UnsupportedError, match="another callback's resumable"):
            trainer.fit(trainer.model(), trainer.callback(tmp_path / "run"), count[1], data=data)
        assert not count[0]


@pytest.mark.parametrize("directories", [("run", "run"), ("run", "other")], ids=["one directory", "two directories"])
def test_two_callbacks_in_one_fit_are_refused(trainer, count, tmp_path, directories):  # noqa: F811
    first, second = (trainer.callback(tmp_path / directory) for directory in directories)
    with pytest.raises(milepost.UnsupportedError, match="one CheckpointCallback only") as refusal:
        trainer.model().fit(X, Y, verbose=0, callbacks=[first, count[1], second])
    assert all(str(tmp_path / directory) in str(refusal.value) for directory in directories)
    assert not count[0]
    assert not list(tmp_path.iterdir())


class TestClassWeights:
    def losses(self, trainer, x, **arguments):  # noqa: F811
        model = trainer.model()
        return model.fit(x, epochs=2, verbose=0, **arguments).history["loss"], weights(model)

    def expected(self, trainer):  # noqa: F811
        return self.losses(trainer, X, y=CLASSES, batch_size=8, shuffle=False, class_weight=WEIGHTS)

    def test_of_arrays_give_the_losses_that_keras_gives(self, trainer, tmp_path):  # noqa: F811
        callback = trainer.callback(tmp_path)
        data = callback.resumable(X, CLASSES, batch_size=8, shuffle=False, class_weight=WEIGHTS)
        assert self.losses(trainer, data, callbacks=[callback]) == self.expected(trainer)

    def test_of_batches_give_them_too(self, trainer, tmp_path):  # noqa: F811
        callback = trainer.callback(tmp_path)
        batches = [(X[start : start + 8], CLASSES[start : start + 8]) for start in range(0, 32, 8)]
        data = callback.resumable(batches_of(batches), class_weight=WEIGHTS)
        assert self.losses(trainer, data, callbacks=[callback]) == self.expected(trainer)

    def test_of_a_dataset_give_them_too(self, trainer, tmp_path):  # noqa: F811
        tf = pytest.importorskip("tensorflow")
        callback = trainer.callback(tmp_path)
        dataset = tf.data.Dataset.from_tensor_slices((X, CLASSES)).batch(8)
        data = callback.resumable(dataset, class_weight=WEIGHTS)
        assert self.losses(trainer, data, callbacks=[callback]) == self.expected(trainer)

    def test_do_not_go_with_sample_weights(self, trainer, tmp_path):  # noqa: F811
        with pytest.raises(milepost.UnsupportedError, match="sample_weight"):
            trainer.callback(tmp_path).resumable(X, CLASSES, np.ones(32), class_weight=WEIGHTS)


class batches_of:  # noqa: N801
    """An iterable that can be read again."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(list(self.batches))


def rate(trainer, model):  # noqa: F811
    return float(trainer.value(model.optimizer.learning_rate))


class TestAnotherLearningRate:
    """Than the program had when the run began."""

    def test_is_refused(self, trainer, count, tmp_path):  # noqa: F811
        trainer.fit(trainer.model(0.01), trainer.callback(tmp_path), epochs=1)
        model = trainer.model(0.001)
        with pytest.raises(milepost.MismatchError, match="changed the learning_rate since"):
            trainer.fit(model, trainer.callback(tmp_path), count[1], epochs=2)
        assert not count[0]
        assert rate(trainer, model) == pytest.approx(0.001)

    @pytest.mark.parametrize(("choice", "expected"), [("program", 0.001), ("saved", 0.01)])
    def test_is_taken_or_not_as_the_user_says(self, trainer, tmp_path, choice, expected):  # noqa: F811
        trainer.fit(trainer.model(0.01), trainer.callback(tmp_path), epochs=1)
        for epochs in (2, 3):  # and again in the next process
            model = trainer.model(0.001)
            trainer.fit(model, trainer.callback(tmp_path, learning_rate=choice), epochs=epochs)
            assert rate(trainer, model) == pytest.approx(expected)

    def test_that_was_set_by_hand_is_refused(self, trainer, tmp_path):  # noqa: F811
        model, callback = trainer.model(0.01), trainer.callback(tmp_path)
        trainer.fit(model, callback, epochs=1)
        model.optimizer.learning_rate = 0.001
        with pytest.raises(milepost.MismatchError, match="changed the learning_rate since"):
            trainer.fit(model, callback, epochs=2)

    def test_that_a_callback_has_set_is_not_mistaken(self, trainer, tmp_path):  # noqa: F811
        def slower():
            return trainer.keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 / (epoch + 2))

        model, callback = trainer.model(0.01), trainer.callback(tmp_path, every_epochs=2)
        trainer.fit(model, callback, slower(), epochs=3)
        trainer.fit(model, callback, slower(), epochs=4)
        model = trainer.model(0.01)
        trainer.fit(model, trainer.callback(tmp_path), slower(), epochs=5)
        assert rate(trainer, model) == pytest.approx(0.01 / 6)

    def test_of_an_older_optimizer_is_refused_too(self, trainer, tmp_path):  # noqa: F811
        if trainer.is_keras_3:
            pytest.skip("Keras 3 has none")

        def model(momentum):
            net = trainer.model()
            net.compile(trainer.keras.optimizers.legacy.SGD(0.01, momentum=momentum), "mse", run_eagerly=True)
            return net

        trainer.fit(model(0.9), trainer.callback(tmp_path), epochs=1)
        with pytest.raises(milepost.MismatchError, match="changed the momentum since"):
            trainer.fit(model(0.5), trainer.callback(tmp_path), epochs=2)


def test_another_optimizer_is_refused(trainer, tmp_path):  # noqa: F811
    trainer.fit(trainer.model(), trainer.callback(tmp_path), epochs=1)
    with pytest.raises(milepost.MismatchError, match="a different optimizer"):
        trainer.fit(trainer.model(optimizer="Adam"), trainer.callback(tmp_path), epochs=2)


def test_other_trainable_variables_are_refused(trainer, tmp_path):  # noqa: F811
    trainer.fit(trainer.model(), trainer.callback(tmp_path), epochs=1)
    model = trainer.keras.Sequential([trainer.keras.Input((3,)), trainer.keras.layers.Dense(1, use_bias=False)])
    model.compile(trainer.keras.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"], run_eagerly=True)
    with pytest.raises(milepost.MismatchError, match="different trainable variables"):
        trainer.fit(model, trainer.callback(tmp_path), epochs=2)


def test_an_epoch_that_the_run_has_not_come_to_is_refused(trainer, tmp_path):  # noqa: F811
    trainer.fit(trainer.model(), trainer.callback(tmp_path), epochs=1)
    with pytest.raises(milepost.MismatchError, match="has not reached"):
        trainer.fit(trainer.model(), trainer.callback(tmp_path), epochs=4, initial_epoch=2)


class TestMonitor:
    @pytest.mark.parametrize(("monitor", "near"), [("val_los", "val_loss"), ("maee", "mae")])
    def test_that_is_misspelt_is_found_in_the_first_step(self, trainer, count, tmp_path, monitor, near):  # noqa: F811
        with pytest.raises(milepost.UnsupportedError, match=f"monitor '{near}'"):
            trainer.fit(
                trainer.model(),
                trainer.callback(tmp_path, monitor=monitor, mode="min"),
                count[1],
                validation_data=(X, Y),
            )
        assert len(count[0]) <= 1

    def test_of_a_model_that_was_trained_is_found_before(self, trainer, count, tmp_path):  # noqa: F811
        model = trainer.model()
        model.train_on_batch(X, Y)
        with pytest.raises(milepost.UnsupportedError, match="pass validation_data"):
            trainer.fit(model, trainer.callback(tmp_path, monitor="val_loss"), count[1])
        assert not count[0]

    def test_without_a_direction_is_found_in_the_first_step(self, trainer, count, tmp_path):  # noqa: F811
        def oddity(y_true, y_pred):
            return y_true - y_pred

        model = trainer.model(metrics=[oddity])
        with pytest.raises(milepost.UnsupportedError, match="mode='auto'"):
            trainer.fit(model, trainer.callback(tmp_path, monitor="oddity"), count[1])
        assert len(count[0]) <= 1

    def test_need_not_be_in_every_epoch(self, trainer, tmp_path):  # noqa: F811
        callback = trainer.callback(tmp_path, monitor="val_loss")
        trainer.fit(trainer.model(), callback, epochs=3, validation_data=(X, Y), validation_freq=3)
        assert callback.best_checkpoint is not None

"""SIGTERM at any moment of a run: nothing is lost, and no step is trained twice."""

import os
import signal

import numpy as np
import pytest

from tests.callbacks.runs import X, Y, computed, trainer, weights  # noqa: F401 - fixtures

MOMENTS = [
    *(("on_train_batch_begin", 1), ("on_train_batch_end", 3), ("on_train_batch_end", 4), ("on_train_batch_end", 12)),
    *(("on_epoch_begin", 1), ("on_epoch_begin", 3), ("on_epoch_end", 1), ("on_epoch_end", 3), ("on_train_end", 1)),
    *(("on_test_batch_end", 1), ("on_test_end", 3), ("on_train_begin", 1)),
]


@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]} {moment[1]}")
def test_a_run_goes_on_as_if_nothing_had_happened(trainer, tmp_path, computed, moment, last):  # noqa: F811
    event, number = moment
    is_compiled = moment == ("on_train_batch_end", 3)
    trained, calls = [], []

    def signal_once(_):
        calls.append(event)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGTERM)

    def run(directory, *others):
        callback = trainer.callback(tmp_path / directory, every_epochs=None, on_sigterm=True)

        def count(_):
            if not callback.is_catching_up:
                trained.append(directory)

        model = trainer.model(is_compiled=is_compiled)
        history = trainer.fit(
            model,
            callback,
            trainer.on("on_train_batch_begin", count),
            *others,
            last=last,
            validation_data=(X, Y),
        )
        return callback.was_terminated, (history.history, weights(model))

    first = run("parts", trainer.on(event, signal_once))
    again = run("parts")
    assert (first[0], again[0]) == (True, False)
    assert trained == ["parts"] * 12
    assert again[1] == computed((trainer.name, last, is_compiled), lambda: run("whole"))[1]


class Seen:
    """A run that SIGTERM ends in the second of its three epochs, with callbacks that act on what they are told."""

    def __init__(self, trainer, directory, at=2):  # noqa: F811
        keras = trainer.keras
        self.epochs, self.validations = [], []
        self.own = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: self.epochs.append(epoch))
        self.log = directory / "log.csv"
        kept = keras.callbacks.CSVLogger(str(self.log), append=True)
        begins = trainer.on("on_test_begin", lambda _: self.validations.append(len(self.epochs)))
        calls = []

        def send(_):
            calls.append(None)
            if len(calls) == 4 + at:
                os.kill(os.getpid(), signal.SIGTERM)

        sender = trainer.on("on_train_batch_end", send)
        self.callback = trainer.callback(directory / "run", every_epochs=None, on_sigterm=True)
        self.model = trainer.model()
        others = (kept, self.own, begins, sender)
        self.history = trainer.fit(self.model, self.callback, *others, validation_data=(X, Y))


@pytest.mark.parametrize("at", [2, 4], ids=["in the middle", "at its last batch"])
def test_a_part_of_an_epoch_is_neither_validated_nor_told_to_other_callbacks(trainer, tmp_path, at):  # noqa: F811
    run = Seen(trainer, tmp_path, at)
    assert run.callback.was_terminated
    assert run.epochs == [0]
    assert run.validations == [0]
    assert run.history.epoch == [0]
    assert len(run.log.read_text().split()) == 2


def test_the_resumed_run_tells_of_the_whole_epoch(trainer, tmp_path):  # noqa: F811
    Seen(trainer, tmp_path)
    run = Seen(trainer, tmp_path, at=100)
    assert run.epochs == [1, 2]
    assert run.validations == [0, 1]
    assert [line.partition(",")[0] for line in run.log.read_text().split()] == ["epoch", "0", "1", "2"]


def test_methods_are_their_own_again(trainer, tmp_path):  # noqa: F811
    run = Seen(trainer, tmp_path)
    assert "evaluate" not in vars(run.model)
    assert np.size(run.model.evaluate(X, Y, verbose=0)) == 2
    run.own.on_epoch_end(7, {})
    assert run.epochs == [0, 7]
    assert "on_epoch_end" not in vars(run.history)


def test_the_signal_comes_while_fit_begins(trainer, tmp_path):  # noqa: F811
    """Before training: while the model is built, for example."""
    callback = trainer.callback(tmp_path, on_sigterm=True)
    model = trainer.model()
    data = callback.resumable(X, Y, batch_size=8, seed=1)
    epochs = []

    class Sending(trainer.keras.callbacks.Callback):
        def set_params(self, params):
            os.kill(os.getpid(), signal.SIGTERM)

    sent = trainer.on("on_epoch_end", epochs.append)
    model.fit(data, epochs=3, verbose=0, callbacks=[Sending(), sent, callback])
    assert callback.was_terminated
    assert epochs == []


def test_other_signals_and_the_handler_of_the_program(trainer, tmp_path):  # noqa: F811
    received = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        callback = trainer.callback(tmp_path, on_signal=signal.SIGUSR1)
        sender = trainer.on("on_train_batch_end", lambda _: os.kill(os.getpid(), signal.SIGUSR1))
        trainer.fit(trainer.model(), callback, sender)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert callback.was_terminated
    assert int(callback._run.step) == 1
    assert received == [signal.SIGUSR1]

"""SIGTERM at any moment of a run: nothing is lost, and no step is trained twice."""

import os
import signal

import pytest

from tests.callbacks.runs import X, Y, computed, trainer, weights  # noqa: F401 - fixtures

MOMENTS = [
    *(("on_train_batch_begin", 1), ("on_train_batch_end", 3), ("on_train_batch_end", 4), ("on_train_batch_end", 12)),
    *(("on_epoch_begin", 1), ("on_epoch_begin", 3), ("on_epoch_end", 1), ("on_epoch_end", 3), ("on_train_end", 1)),
    *(("on_test_batch_end", 1), ("on_test_end", 3)),
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

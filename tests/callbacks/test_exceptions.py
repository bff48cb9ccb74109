"""What a run of ``fit()`` that ended with an exception leaves to the next one in the same process: nothing."""

import os
import shutil
import signal

import numpy as np
import pytest

import milepost
from tests.callbacks.runs import Interrupted, X, Y, computed, trainer, weights  # noqa: F401 - fixtures

pytestmark = pytest.mark.filterwarnings("ignore:the callbacks are others:milepost.MilepostWarning")


@pytest.fixture
def is_compiled(event):
    return event == ("on_train_batch_end", 2)


@pytest.fixture
def expected(trainer, tmp_path, computed, is_compiled):  # noqa: F811
    """History and weights of a run that nothing has interrupted."""

    def run():
        model = trainer.model(is_compiled=is_compiled)
        history = trainer.fit(model, trainer.callback(tmp_path / "whole"))
        return history.history, weights(model)

    return computed((trainer.name, "expected", is_compiled), run)


@pytest.fixture
def interrupted(trainer, tmp_path, tmp_path_factory, computed, is_compiled):  # noqa: F811
    """The directory of a run that was saved after three batches of four in its second epoch."""

    def run():
        directory = tmp_path_factory.mktemp("interrupted")
        callback = trainer.callback(directory, every_steps=7, every_epochs=None)
        seen = []

        def count(batch):
            seen.append(batch)
            if len(seen) == 8:
                raise Interrupted

        with pytest.raises(Interrupted):
            trainer.fit(trainer.model(is_compiled=is_compiled), callback, trainer.on("on_train_batch_end", count))
        return directory

    return shutil.copytree(computed((trainer.name, "interrupted", is_compiled), run), tmp_path / "run")


EVENTS = [
    *(("on_train_batch_begin", 0), ("on_train_batch_end", 0), ("on_train_batch_begin", 2), ("on_train_batch_end", 2)),
    *(("on_epoch_begin", 1), ("on_train_batch_begin", 3), ("on_train_begin", None), ("on_epoch_end", 1)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event[0]} {event[1]}")
class TestAfterAnException:
    @pytest.fixture
    def model(self, trainer, interrupted, event, is_compiled):  # noqa: F811
        """A model whose second run ended with an exception."""
        model = trainer.model(is_compiled=is_compiled)
        with pytest.raises(Interrupted):
            trainer.fit(model, trainer.callback(interrupted, every_steps=7), trainer.raising(*event))
        return model

    def test_the_next_fit_ends_as_if_nothing_had_happened(self, trainer, interrupted, event, is_compiled, expected):  # noqa: F811
        model, stop = trainer.model(is_compiled=is_compiled), trainer.raising(*event)
        callback = trainer.callback(interrupted, every_steps=7)
        data = callback.resumable(X, Y, batch_size=8, seed=1)
        with pytest.raises(Interrupted):
            trainer.fit(model, callback, stop, data=data)
        assert not callback.is_catching_up
        history = trainer.fit(model, callback, stop, data=data)
        assert (history.history, weights(model)) == expected
        assert int(trainer.value(model.optimizer.iterations)) == 12

    def test_a_fit_without_the_callback_trains_all_epochs(self, trainer, model):  # noqa: F811
        steps = []
        before = int(trainer.value(model.optimizer.iterations))
        count = trainer.on("on_train_batch_end", steps.append)
        history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[count])
        assert history.epoch == [0, 1]
        assert len(steps) == 8
        assert int(trainer.value(model.optimizer.iterations)) == before + 8

    def test_a_batch_is_trained(self, trainer, model):  # noqa: F811
        before = model.get_weights()
        model.train_on_batch(X, Y)
        assert any(np.any(old != new) for old, new in zip(before, model.get_weights(), strict=True))


def test_the_previous_handler_gets_a_signal_after_an_exception(trainer, tmp_path):  # noqa: F811
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append("previous"))
    try:
        with pytest.raises(Interrupted):
            trainer.fit(
                trainer.model(), trainer.callback(tmp_path, on_sigterm=True), trainer.raising("on_epoch_begin", 1)
            )
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == ["previous"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_background_save_is_over_before_the_next_run_begins(trainer, tmp_path):  # noqa: F811
    options = {"every_steps": 1, "options": milepost.CheckpointOptions(enable_async=True)}
    model, callback = trainer.model(), trainer.callback(tmp_path, **options)
    with pytest.raises(Interrupted):
        trainer.fit(model, callback, trainer.raising("on_train_batch_begin", 3))
    steps = []
    trainer.fit(
        model, callback, trainer.on("on_train_batch_end", lambda _: steps.append(callback.is_catching_up)), epochs=1
    )
    assert steps == [True, True, True, False]


@pytest.mark.parametrize("event", [("on_train_batch_end", 1)], ids=["while catching up"])
def test_a_run_goes_on_where_its_epoch_had_no_batch_left(trainer, tmp_path, event, expected):  # noqa: F811
    callback = trainer.callback(tmp_path / "run", every_steps=8, every_epochs=None)
    model, after_the_last_batch = trainer.model(is_compiled=False), trainer.raising("on_epoch_end", 1)
    with pytest.raises(Interrupted):
        trainer.fit(model, callback, after_the_last_batch)
    model, stop = trainer.model(is_compiled=False), trainer.raising(*event)
    callback = trainer.callback(tmp_path / "run", every_steps=8)
    data = callback.resumable(X, Y, batch_size=8, seed=1)
    with pytest.raises(Interrupted):
        trainer.fit(model, callback, stop, data=data)
    history = trainer.fit(model, callback, stop, data=data)
    assert (history.history, weights(model)) == expected

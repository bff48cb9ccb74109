"""Arrays that are given to ``fit()`` as they are, so that Keras itself shuffles them."""

import gc
import warnings

import pytest

import milepost
from tests.callbacks.runs import X, Y, trainer  # noqa: F401 - a fixture


def warned(trainer, directory, epochs, **arguments):  # noqa: F811
    """The warnings of milepost in one run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback = trainer.callback(directory)
        trainer.model().fit(X, Y, epochs=epochs, verbose=0, callbacks=[callback], **arguments)
        del callback
        gc.collect()
    return [str(each.message) for each in caught if issubclass(each.category, milepost.MilepostWarning)]


def test_an_order_that_cannot_be_continued_is_warned_of_before_training(trainer, tmp_path):  # noqa: F811
    found = warned(trainer, tmp_path, 1)
    assert ["pass callback.resumable(x, y)" in each for each in found] == ([] if trainer.is_keras_3 else [True])


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_that_goes_on_between_epochs_warns_of_nothing(trainer, tmp_path, epochs):  # noqa: F811
    warned(trainer, tmp_path, 1, shuffle=False)
    assert warned(trainer, tmp_path, epochs, shuffle=False) == []

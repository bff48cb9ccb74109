"""Arrays that are given to ``fit()`` as they are, so that Keras itself shuffles them."""

import warnings

import milepost
from tests.callbacks.runs import X, Y, trainer  # noqa: F401 - a fixture


def warned(trainer, directory, epochs, **arguments):  # noqa: F811
    """The warnings of milepost in one run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        callback = trainer.callback(directory)
        trainer.model().fit(X, Y, epochs=epochs, verbose=0, callbacks=[callback], **arguments)
    return [str(each.message) for each in caught if issubclass(each.category, milepost.MilepostWarning)]


def test_an_order_that_cannot_be_continued_is_warned_of_before_training(trainer, tmp_path):  # noqa: F811
    found = warned(trainer, tmp_path, 1)
    assert ["pass callback.resumable(x, y)" in each for each in found] == [] if trainer.is_keras_3 else [True]


def test_an_order_that_is_the_same_in_each_pass_is_not_warned_of(trainer, tmp_path):  # noqa: F811
    assert warned(trainer, tmp_path, 1, shuffle=False) == []

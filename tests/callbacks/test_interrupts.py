"""Ctrl-C in a run of Keras, at lines of milepost that are chosen by chance: the next run goes on from the last save."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import milepost.keras  # noqa: E402
from tests import interrupts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X, Y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)


def fit(directory, epochs=2):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    callback = milepost.keras.CheckpointCallback(directory, every_epochs=1)
    model.fit(X, Y, epochs=epochs, batch_size=4, verbose=0, callbacks=[callback])
    return model, callback


def check(directory):
    model, _ = fit(directory)
    whole, _ = fit(f"{directory}/whole")
    for ours, theirs in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_run_goes_on_after_an_interrupt():
    assert interrupts.found(str, fit, check, more=0, most=10) == []

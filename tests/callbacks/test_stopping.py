"""Runs that another callback stops, interrupted right before they end."""

import numpy as np
import pytest

keras = pytest.importorskip("keras", minversion="3", reason="these are runs of Keras 3")
callbacks = pytest.importorskip("milepost.keras", reason="these are runs of Keras 3")

X = np.random.RandomState(0).rand(16, 3).astype("float32")
Y = X.sum(axis=1, keepdims=True)


class Interrupted(Exception):  # noqa: N818 - it is none
    pass


class Limit(keras.callbacks.Callback):  # type: ignore[name-defined]
    """Stops after eight steps, and may end a run at the end of its second epoch."""

    def __init__(self, interrupts):
        super().__init__()
        self.interrupts = interrupts

    def on_train_batch_end(self, batch, logs=None):
        if int(keras.ops.convert_to_numpy(self.model.optimizer.iterations)) >= 8:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.interrupts and epoch == 1:
            raise Interrupted


def history(directory, interrupts=False):
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    net.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    callback = callbacks.CheckpointCallback(directory, every_steps=1)
    data = callback.resumable(X, Y, batch_size=4, seed=1)
    return net.fit(data, epochs=3, verbose=0, callbacks=[Limit(interrupts), callback]).history


def test_a_limit_of_steps_does_not_stop_a_run_while_it_counts_steps_that_were_trained(tmp_path):
    whole = history(tmp_path / "whole")
    with pytest.raises(Interrupted):
        history(tmp_path / "parts", interrupts=True)
    assert history(tmp_path / "parts") == whole

"""A run that has ended is started again: fit() trains nothing, and the model has its values."""

import numpy as np
import pytest

X, Y = np.arange(12, dtype="float32").reshape(6, 2) / 12, np.ones((6, 1), "float32")


def trained(keras, module, directory, *, built, **options):
    layers = [keras.Input((2,))] if built else []
    model = keras.Sequential([*layers, keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer=keras.optimizers.SGD(0.1, **options), loss="mse")
    callback = module.CheckpointCallback(str(directory))
    history = model.fit(callback.resumable(X, Y, batch_size=2, seed=1), epochs=2, verbose=0, callbacks=[callback])
    return [weight.tolist() for weight in model.get_weights()], history.history["loss"]


@pytest.mark.parametrize("package", ["tf_keras", "keras"])
@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
@pytest.mark.parametrize("options", [{}, {"use_ema": True, "ema_overwrite_frequency": 3}], ids=["plain", "averaged"])
def test_it_trains_nothing_and_has_its_weights_and_history(tmp_path, package, built, options):
    keras = pytest.importorskip(package)
    module = pytest.importorskip(f"milepost.{package}")
    first = trained(keras, module, tmp_path, built=built, **options)
    assert trained(keras, module, tmp_path, built=built, **options) == first

"""Keras' layers are Keras', also where they are modules of NNX."""

import importlib.util
import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")
if importlib.util.find_spec("keras") is None or importlib.util.find_spec("flax") is None:
    pytest.skip("Keras or Flax is not installed", allow_module_level=True)

SCRIPT = """
import sys
import keras, numpy as np
from flax import nnx
import milepost

def make():
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dropout(0.5)])
    model.build((None, 2))
    return model

saved, fresh = make(), make()
assert isinstance(saved, nnx.Module)
path = milepost.Checkpoint(model=saved).write(sys.argv[1])
milepost.Checkpoint(model=fresh).read(path).assert_consumed()
assert np.array_equal(fresh.layers[0].kernel, saved.layers[0].kernel)
print(*(key.partition("/.")[0] for key, _ in milepost.list_variables(path)[1:]))
"""


def test_layers_that_are_modules_are_saved_as_keras_layers(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "ckpt")],
        env={**os.environ, "KERAS_BACKEND": "jax", "KERAS_NNX_ENABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "model/layer-1/seed_generator/state",
        "model/layer_with_weights-0/bias",
        "model/layer_with_weights-0/kernel",
    ]

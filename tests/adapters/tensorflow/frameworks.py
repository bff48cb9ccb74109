"""TensorFlow, and the Keras 2 that goes with it: tf_keras or, before TensorFlow 2.16, keras itself."""

import os

import pytest

import milepost

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
try:
    import tf_keras as keras
except ImportError:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    if int(keras.__version__.partition(".")[0]) >= 3:
        pytest.skip("tf_keras is not installed", allow_module_level=True)

CHECKPOINTS = {"milepost": milepost.Checkpoint, "tensorflow": tf.train.Checkpoint}

exchanged = pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param(CHECKPOINTS[writer], CHECKPOINTS[reader], id=f"{writer}-to-{reader}")
        for writer, reader in [("milepost", "milepost"), ("milepost", "tensorflow"), ("tensorflow", "milepost")]
    ],
)
"""Runs a test for every pair of a writer and a reader."""

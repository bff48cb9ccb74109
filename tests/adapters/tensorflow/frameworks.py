"""TensorFlow, and the Keras 2 that goes with it: tf_keras or, before TensorFlow 2.16, keras itself."""

import importlib.metadata
import os

import pytest

import milepost

__all__ = ["CHECKPOINTS", "exchanged", "keras", "tf"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def _keras_2():
    try:
        name = "keras" if importlib.metadata.version("keras").startswith("2.") else "tf_keras"
    except importlib.metadata.PackageNotFoundError:
        name = "tf_keras"
    return pytest.importorskip(name, reason="Keras 2 is not installed")


keras = _keras_2()

CHECKPOINTS = {"milepost": milepost.Checkpoint, "tensorflow": tf.train.Checkpoint}

exchanged = pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param(CHECKPOINTS[writer], CHECKPOINTS[reader], id=f"{writer}-to-{reader}")
        for writer, reader in [("milepost", "milepost"), ("milepost", "tensorflow"), ("tensorflow", "milepost")]
    ],
)
"""Runs a test for every pair of a writer and a reader."""

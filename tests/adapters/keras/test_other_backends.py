"""Keras takes its backend when it is imported, so the tests of this folder run once more for each of the others."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

_CHILD = "MILEPOST_TESTS_KERAS_CHILD"


@pytest.mark.skipif(_CHILD in os.environ, reason="this is the run on another backend")
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("file", ["test_deferred.py", "test_optimizers.py", "test_objects.py"])
def test_everything_holds_on(backend, file):
    pytest.importorskip("keras", minversion="3")
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend, _CHILD: "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    path = str(Path(__file__).with_name(file))
    run = subprocess.run([*command, path], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]

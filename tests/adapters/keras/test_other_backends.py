"""Keras takes its backend when it is imported, so the tests of this folder run once more for each of the others."""

import importlib.util
import os
from pathlib import Path

import pytest

from tests import programs

_CHILD = "MILEPOST_TESTS_KERAS_CHILD"


@pytest.mark.skipif(_CHILD in os.environ, reason="this is the run on another backend")
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("file", ["test_deferred.py", "test_optimizers.py", "test_objects.py"])
def test_everything_holds_on(backend, file):
    pytest.importorskip("keras", minversion="3")
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = programs.run(
        [*command, Path(__file__).with_name(file)],
        imports=programs.imports("keras", backend),
        environment=programs.environment(backend, **{_CHILD: "1"}),
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]

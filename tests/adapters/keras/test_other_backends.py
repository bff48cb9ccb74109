"""Keras takes its backend when it is imported, so the tests of this folder run once more for each of the others."""

import importlib.util
from pathlib import Path

import pytest

from tests import programs


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
        environment=programs.environment(backend),
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]

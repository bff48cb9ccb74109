"""A training that was saved under one backend of Keras goes on under another, with the same losses."""

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

import milepost
from tests import programs

GUIDE = Path(__file__).parents[2] / "examples" / "guide_keras.py"
BACKENDS = ("tensorflow", "jax", "torch")
STEPS = 50


def losses(guide, checkpoint, count):
    """Trains as the guide does."""
    found = []
    for _ in range(count):
        found.append(guide["train_step"](checkpoint.net, next(checkpoint.iterator)))
        checkpoint.step.assign(checkpoint.step + 1)
    return found


def main(directories):
    """Writes a checkpoint to the first directory, and resumes those of the others; prints the losses after each."""
    import keras

    keras.utils.set_random_seed(1)
    guide = runpy.run_path(str(GUIDE))
    own, *others = directories
    result = {}
    if own:
        checkpoint, manager = guide["create"](own)
        losses(guide, checkpoint, STEPS)
        manager.save()
        result[own] = losses(guide, checkpoint, STEPS)
    for directory in others:
        keras.utils.set_random_seed(2)
        checkpoint, manager = guide["create"](directory)
        status = checkpoint.restore(manager.latest_checkpoint)
        result[directory] = losses(guide, checkpoint, STEPS)
        status.assert_consumed()
        assert int(checkpoint.step) == 1 + 2 * STEPS
    print(json.dumps(result))


def run(backend, *directories):
    done = programs.run(
        ["-m", __name__, *directories],
        imports=programs.imports("keras", backend),
        environment=programs.environment(backend, hash_seed=1 + BACKENDS.index(backend)),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """By backend: the directory of its checkpoint, and the losses that came after it."""
    pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")
    for backend in BACKENDS:
        if importlib.util.find_spec(backend) is None:
            pytest.skip(f"{backend} is not installed")
    root = tmp_path_factory.mktemp("backends")
    return {backend: (root / backend, run(backend, root / backend)[str(root / backend)]) for backend in BACKENDS}


@pytest.mark.parametrize("reader", BACKENDS)
def test_losses_go_on_as_on_the_backends_that_wrote(written, reader):
    writers = [backend for backend in BACKENDS if backend != reader]
    resumed = run(reader, "", *(written[writer][0] for writer in writers))
    for writer in writers:
        directory, expected = written[writer]
        assert resumed[str(directory)] == pytest.approx(expected, rel=1e-5), f"{writer} to {reader}"


def test_every_backend_writes_the_same_keys(written):
    keys = {backend: milepost.list_variables(directory) for backend, (directory, _) in written.items()}
    assert keys["tensorflow"] == keys["jax"] == keys["torch"]


if __name__ == "__main__":
    main(sys.argv[1:])

"""A checkpoint that was written under one of Keras' backends resumes under each of the others."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")
BACKENDS = ("tensorflow", "jax", "torch")


def train(backend, *arguments):
    """The losses that the guide's training prints on a backend, a row for each directory."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.switching", *map(str, arguments)],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return np.array([json.loads(line) for line in done.stdout.splitlines()])


@pytest.fixture(scope="module")
def installed():
    return [backend for backend in BACKENDS if importlib.util.find_spec(backend) is not None]


@pytest.fixture(scope="module")
def written(installed, tmp_path_factory):
    """By writer: the directory of its checkpoint, and the losses of its own next fifty steps."""
    directories = {writer: tmp_path_factory.mktemp(writer) for writer in installed}
    return {writer: (directory, train(writer, "write", directory)[0]) for writer, directory in directories.items()}


@pytest.fixture(scope="module")
def resumed(installed, written):
    """By writer and reader: the losses of the reader's fifty steps."""
    losses = {}
    for reader in installed:
        writers = [writer for writer in installed if writer != reader]
        rows = train(reader, "read", *(written[writer][0] for writer in writers))
        losses.update({(writer, reader): row for writer, row in zip(writers, rows, strict=True)})
    return losses


@pytest.mark.parametrize(("writer", "reader"), list(itertools.permutations(BACKENDS, 2)))
def test_losses_agree_after_the_switch(installed, written, resumed, writer, reader):
    for backend in (writer, reader):
        if backend not in installed:
            pytest.skip(f"{backend} is not installed")
    losses = resumed[writer, reader]
    assert len(losses) == 50
    np.testing.assert_allclose(losses, written[writer][1], rtol=1e-5)

"""TensorFlow reads checkpoints that share data files, deletes them and writes over them, and the others stay whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, Variable, load_checkpoint

tf = pytest.importorskip("tensorflow")

BASE = np.arange(50_000.0)
INCREMENTAL = CheckpointOptions(incremental=True)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Three checkpoints of which the last two have taken over the file of the first."""
    checkpoint: Any = Checkpoint(base=Variable(BASE), step=Variable(np.int64(0)))
    found = []
    for number in (1, 2, 3):
        checkpoint.step.assign(number)
        found.append(checkpoint.save(tmp_path / "ckpt", INCREMENTAL))
    assert Path(f"{found[0]}.data-00000-of-00001").stat().st_nlink == 3
    return found


def test_a_reader(paths: list[str]) -> None:
    """All values, and that a data file has bytes that no entry names is no matter."""
    for number, path in enumerate(paths, start=1):
        reader = tf.train.load_checkpoint(path)
        assert np.array_equal(reader.get_tensor("base/.ATTRIBUTES/VARIABLE_VALUE"), BASE)
        assert reader.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE") == number


def test_a_restore(paths: list[str]) -> None:
    for number, path in enumerate(paths, start=1):
        live = tf.train.Checkpoint(base=tf.Variable(tf.zeros(50_000, tf.float64)), step=tf.Variable(0, dtype=tf.int64))
        live.restore(path).assert_existing_objects_matched()
        assert np.array_equal(live.base.numpy(), BASE)
        assert live.step.numpy() == number


def test_a_deletion(paths: list[str]) -> None:
    """By TensorFlow."""
    tf.compat.v1.train.remove_checkpoint(paths[0])
    tf.compat.v1.train.remove_checkpoint(paths[2])
    assert not list(Path(paths[0]).parent.glob("ckpt-[13]*"))
    load_checkpoint(paths[1]).verify()


def test_a_save_over_one_of_them(paths: list[str]) -> None:
    """TensorFlow renames its files too, so it does not write into a file that others share."""
    live = tf.train.Checkpoint(base=tf.Variable(tf.zeros(50_000, tf.float64)), step=tf.Variable(9, dtype=tf.int64))
    live.write(paths[0])
    for path in paths[1:]:
        load_checkpoint(path).verify()
        assert np.array_equal(milepost.load_variable(path, "base/.ATTRIBUTES/VARIABLE_VALUE"), BASE)


def test_an_earlier_checkpoint_of_tensorflow(tmp_path: Path) -> None:
    """Its file is taken over, if tensors may begin anywhere."""
    live = tf.train.Checkpoint(base=tf.Variable(BASE), step=tf.Variable(1, dtype=tf.int64))
    first = live.save(str(tmp_path / "ckpt"))
    checkpoint: Any = Checkpoint(base=Variable(np.zeros(50_000)), step=Variable(np.int64(0)))
    checkpoint.restore(first).assert_consumed()
    checkpoint.step.assign(2)
    second = checkpoint.save(tmp_path / "ckpt", CheckpointOptions(incremental=True, data_alignment=1))
    assert Path(f"{first}.data-00000-of-00001").stat().st_nlink == 2
    live.restore(second).assert_existing_objects_matched()
    assert np.array_equal(live.base.numpy(), BASE)
    assert live.step.numpy() == 2

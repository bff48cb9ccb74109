"""A `milepost.Checkpoint` that is managed by TensorFlow's own `tf.train.CheckpointManager`."""

import os

from milepost import Checkpoint, latest_checkpoint
from tests.adapters.tensorflow.frameworks import tf


def test_it_saves_lists_and_keeps_the_newest(tmp_path):
    checkpoint = Checkpoint(v=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=2)
    paths = [manager.save() for _ in range(3)]
    assert manager.checkpoints == paths[1:]
    assert latest_checkpoint(tmp_path) == paths[-1]
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".index")) == ["ckpt-2.index", "ckpt-3.index"]


def test_it_restores_what_it_saved(tmp_path):
    saved = Checkpoint(v=tf.Variable(3.0))
    tf.train.CheckpointManager(saved, str(tmp_path), max_to_keep=2).save()
    live = Checkpoint(v=tf.Variable(0.0))
    tf.train.CheckpointManager(live, str(tmp_path), max_to_keep=2).restore_or_initialize()
    assert (float(live.v), int(live.save_counter)) == (3.0, 1)

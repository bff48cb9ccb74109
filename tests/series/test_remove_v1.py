"""Removing checkpoints of TensorFlow before 0.12."""

import os

import pytest

import milepost

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.mark.parametrize("sharded", [True, False])
def test_all_files_of_a_v1_checkpoint_are_removed_and_no_others(sharded, tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("v", initializer=1.0)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(sharded=sharded, write_version=1)
        saver.save(session, str(tmp_path / "kept"))
        path = saver.save(session, str(tmp_path / "v1"))
    assert milepost.tensorflow1.checkpoint_exists(path)
    milepost.tensorflow1.remove_checkpoint(path, 1)
    assert not milepost.tensorflow1.checkpoint_exists(path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("v1")]
    assert [name for name in os.listdir(tmp_path) if name.startswith("kept")]


def test_a_v2_checkpoint_of_the_same_prefix_stays(tmp_path):
    path = milepost.Checkpoint(v=milepost.Variable(1.0)).write(tmp_path / "ckpt")
    milepost.tensorflow1.remove_checkpoint(path, 1)
    assert milepost.tensorflow1.checkpoint_exists(path)

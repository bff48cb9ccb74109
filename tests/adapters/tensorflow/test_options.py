"""TensorFlow's options, sharding policies and path tensors, given to milepost."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions
from tests.adapters.tensorflow.frameworks import tf

needs_policies = pytest.mark.skipif(
    not hasattr(tf.train.experimental, "MaxShardSizePolicy"), reason="this TensorFlow has no sharding policies"
)
KEY = "v/.ATTRIBUTES/VARIABLE_VALUE"


def checkpoint():
    return Checkpoint(v=tf.Variable(np.arange(10, dtype=np.float32)))


def test_tensorflows_options_are_taken_by_everything(tmp_path):
    options = tf.train.CheckpointOptions(enable_async=True)
    saved = checkpoint()
    path = saved.save(tmp_path / "ckpt", options)
    saved.restore(path, options).assert_consumed()
    saved.read(saved.write(tmp_path / "written", options), options).assert_consumed()
    manager = CheckpointManager(saved, tmp_path / "run", max_to_keep=1, options=options)
    manager.save(options=options)
    manager.sync()
    assert manager.restore_or_initialize() == str(tmp_path / "run" / "ckpt-2")
    model = tf.Module()
    model.v = tf.Variable(1.0)
    milepost.load_weights(model, milepost.save_weights(model, tmp_path / "weights", options), options).assert_consumed()


def test_tensorflows_write_callbacks_are_called(tmp_path):
    called = []
    options = tf.train.CheckpointOptions(experimental_write_callbacks=[called.append, lambda: called.append("none")])
    path = checkpoint().save(tmp_path / "ckpt", options)
    assert called == [path, "none"]


@needs_policies
def test_tensorflows_shard_sizes_are_understood(tmp_path):
    policy = tf.train.experimental.MaxShardSizePolicy(16)
    for name, kind in (("ours", CheckpointOptions), ("theirs", tf.train.CheckpointOptions)):
        path = checkpoint().write(tmp_path / name, kind(experimental_sharding_callback=policy))
        assert (tmp_path / f"{name}.data-00000-of-00003").exists()
        assert milepost.load_variable(path, KEY).tolist() == list(range(10))


@needs_policies
def test_tensorflows_shards_for_tasks_are_understood(tmp_path):
    policy = tf.train.experimental.ShardByTaskPolicy()
    checkpoint().write(tmp_path / "ckpt", CheckpointOptions(experimental_sharding_callback=policy))
    assert (tmp_path / "ckpt.data-00000-of-00001").exists()


@needs_policies
def test_another_sharding_callback_of_tensorflow_is_refused(tmp_path):
    class Mine(tf.train.experimental.ShardingCallback):
        description = "mine"

        def __call__(self, shardable_tensors):
            return []

    with pytest.raises(milepost.UnsupportedError, match="MaxShardSizePolicy"):
        CheckpointOptions(experimental_sharding_callback=Mine())
    with pytest.raises(milepost.UnsupportedError, match="MaxShardSizePolicy"):
        checkpoint().write(tmp_path / "ckpt", tf.train.CheckpointOptions(experimental_sharding_callback=Mine()))


@pytest.mark.parametrize("form", [tf.constant, np.str_, np.array, str.encode, lambda path: np.array(path.encode())])
def test_a_path_may_be_a_tensor_or_array_or_bytes(form, tmp_path):
    saved = checkpoint()
    path = saved.save(form(str(tmp_path / "ckpt")))
    assert path == str(tmp_path / "ckpt-1")
    assert type(path) is str
    saved.restore(form(path)).assert_consumed()
    saved.read(form(saved.write(form(str(tmp_path / "written"))))).assert_consumed()
    directory = form(str(tmp_path))
    assert milepost.latest_checkpoint(directory) == path
    assert milepost.get_checkpoint_state(directory).model_checkpoint_path == path
    assert milepost.load_checkpoint(form(path)).has_tensor(KEY)
    assert milepost.load_variable(directory, KEY).tolist() == list(range(10))
    assert milepost.tensorflow1.checkpoint_exists(form(path))
    assert len(milepost.tensorflow1.get_checkpoint_mtimes([form(path)])) == 1
    assert milepost.CheckpointView(form(path)).children(0)
    milepost.tensorflow1.update_checkpoint_state(directory, form(path))
    assert CheckpointManager(saved, form(str(tmp_path / "run")), max_to_keep=1).save() == str(
        tmp_path / "run" / "ckpt-2"
    )
    milepost.tensorflow1.remove_checkpoint(form(path))
    assert not milepost.tensorflow1.checkpoint_exists(path)


@pytest.mark.parametrize("path", [3, None, 1.5, ["a"], tf.constant(3), tf.constant(["a", "b"])])
def test_what_is_no_path_is_refused(path, tmp_path):
    with pytest.raises(milepost.UnsupportedError, match="not a path"):
        checkpoint().write(path)
    with pytest.raises(milepost.UnsupportedError, match="not a path"):
        milepost.load_checkpoint(path)


def test_a_tensor_of_a_graph_is_refused_as_a_path():
    with tf.Graph().as_default(), pytest.raises(milepost.UnsupportedError, match="value is known"):
        milepost.load_checkpoint(tf.constant("ckpt"))

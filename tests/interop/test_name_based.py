"""Name-based checkpoints, as TensorFlow 1's Saver writes them, restored into live objects by name."""

import os

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, MismatchError, Module, Variable
from milepost.engine.report import Outcome
from milepost.restoring.status import NameBasedStatus

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
v1 = tf.compat.v1


@pytest.fixture(params=["V1", "V2"])
def saved(request, tmp_path):
    """A checkpoint of dense/kernel, dense/bias, global_step and a partitioned embedding."""
    version = getattr(v1.train.SaverDef, request.param)
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("dense"):
            v1.get_variable("kernel", initializer=np.arange(6, dtype=np.float32).reshape(2, 3), use_resource=False)
            v1.get_variable("bias", initializer=np.float32([1, 2, 3]), use_resource=False)
        v1.get_variable("global_step", initializer=np.int64(7), use_resource=False)
        v1.get_variable(
            "embedding",
            shape=(10, 2),
            initializer=lambda shape, dtype=None, partition_info=None: tf.reshape(tf.range(20.0), (10, 2))[
                partition_info.var_offset[0] : partition_info.var_offset[0] + shape[0]
            ],
            partitioner=v1.fixed_size_partitioner(3),
            use_resource=False,
        )
        session.run(v1.global_variables_initializer())
        path = v1.train.Saver(write_version=version).save(session, str(tmp_path / "model.ckpt"), global_step=7)
    assert os.path.isfile(path) == (request.param == "V1")
    return path


def layer():
    made = Module()
    made.w = Variable(np.zeros((2, 3), np.float32), name="dense/kernel")
    made.b = Variable(np.zeros(3, np.float32), name="dense/bias")
    return made


def test_variables_are_matched_by_their_names(saved):
    live = Checkpoint(layer=layer(), step=Variable(0, np.int64, name="global_step"))
    status = live.restore(saved)
    assert isinstance(status, NameBasedStatus)
    status.assert_consumed().assert_existing_objects_matched().assert_nontrivial_match()
    assert live.layer.w[1, 2] == 5
    assert live.layer.b.tolist() == [1, 2, 3]
    assert live.step == 7


def test_a_partitioned_variable_is_restored_whole(saved):
    live = Checkpoint(e=Variable(np.zeros((10, 2), np.float32), name="embedding"))
    live.restore(saved).assert_consumed()
    np.testing.assert_array_equal(live.e, np.arange(20).reshape(10, 2))


def test_objects_without_names_are_matched_by_their_paths(saved):
    dense = Module()
    dense.kernel = np.zeros((2, 3), np.float32)
    dense.bias = Variable(np.zeros(3, np.float32))
    live = Checkpoint(dense=dense)
    live.restore(saved).assert_consumed()
    assert dense.kernel[0, 1] == 1
    assert dense.bias[2] == 3


def test_objects_attached_later_are_matched_when_they_come(saved):
    live = Checkpoint()
    status = live.restore(saved)
    live.layer = layer()
    assert live.layer.w[1, 2] == 5
    live.dense = Module()
    live.dense.bias = Variable(np.zeros(3, np.float32))
    assert live.dense.bias[0] == 1
    status.assert_consumed()


def test_names_that_are_missing_fail_every_assertion_and_unused_keys_none(saved):
    live = Checkpoint(layer=layer(), other=Variable(0.0, name="nowhere"))
    status = live.restore(saved)
    for assertion in (
        status.assert_consumed,
        status.assert_existing_objects_matched,
        status.assert_nontrivial_match,
    ):
        with pytest.raises(AssertionError, match="nowhere"):
            assertion()
    report = status.report()
    assert [entry.key for entry in report.missing] == ["nowhere"]
    assert [entry.key for entry in report.unexpected] == ["embedding", "global_step"]


def test_a_shape_that_does_not_fit_changes_nothing(saved):
    made = layer()
    made.b = Variable(np.zeros(4, np.float32), name="dense/bias")
    with pytest.raises(MismatchError) as caught:
        Checkpoint(layer=made).restore(saved)
    assert caught.value.key == "dense/bias"
    assert not np.asarray(made.w).any()


def test_its_tensors_can_be_listed_and_read(saved):
    assert milepost.list_variables(saved) == [
        ("dense/bias", [3]),
        ("dense/kernel", [2, 3]),
        ("embedding", [10, 2]),
        ("global_step", []),
    ]
    assert milepost.load_variable(saved, "dense/bias:0").tolist() == [1, 2, 3]
    assert milepost.latest_checkpoint(os.path.dirname(saved)) == saved


def test_a_save_after_it_is_object_based_and_resumes(saved, tmp_path):
    live = Checkpoint(layer=layer())
    live.restore(saved)
    path = live.save(tmp_path / "new" / "ckpt")
    again = Checkpoint(layer=layer())
    again.restore(path).assert_consumed()
    assert again.layer.w[1, 2] == 5


@pytest.mark.parametrize("step", ["global_step", "step"])
@pytest.mark.parametrize("argument", ["only", "ignore"])
def test_names_in_the_file_and_paths_of_live_objects_select_alike(saved, argument, step):
    live = Checkpoint(layer=layer(), step=Variable(0, np.int64, name="global_step"))
    status = live.restore(saved, **{argument: step})
    status.assert_consumed().assert_existing_objects_matched()
    assert (int(live.step), float(live.layer.w[1, 2])) == ((7, 0) if argument == "only" else (0, 5))
    outcomes = {entry.key: entry.outcome for entry in status.report() if entry.saved}
    assert outcomes["dense/kernel"] is (Outcome.IGNORED if argument == "only" else Outcome.MATCHED)
    assert outcomes["global_step"] is (Outcome.MATCHED if argument == "only" else Outcome.IGNORED)


def test_a_path_selects_an_object_that_is_attached_later(saved):
    live = Checkpoint()
    with pytest.warns(milepost.UnrestoredWarning, match="layer/w"):
        live.restore(saved, only="layer/w").expect_partial()
    live.layer = layer()
    assert live.layer.w[1, 2] == 5
    assert not np.asarray(live.layer.b).any()


@pytest.mark.parametrize("step", ["global_step", "step"])
def test_names_and_paths_cast_alike(saved, step):
    live = Checkpoint(step=Variable(0, np.int32, name="global_step"))
    live.restore(saved, cast=step).assert_consumed()
    assert live.step == 7


@pytest.mark.parametrize("new", ["mine", "layer/w"])
def test_rename_gives_the_name_or_the_path_of_a_variable(saved, new):
    live = Checkpoint(layer=Module())
    live.layer.w = Variable(np.zeros((2, 3), np.float32), name="mine")
    live.restore(saved, rename={"dense/kernel": new}).assert_consumed()
    assert live.layer.w[1, 2] == 5


@pytest.mark.parametrize("only", ["dense", "model", "model/dense/kernel"])
def test_a_shared_object_is_selected_by_each_of_its_paths(saved, only):
    dense = Module()
    dense.kernel = Variable(np.zeros((2, 3), np.float32))
    live = Checkpoint(dense=dense, model=Module(), step=Variable(0, np.int64, name="global_step"))
    live.model.dense = dense
    live.restore(saved, only=only).assert_consumed()
    assert dense.kernel[0, 1] == 1
    assert live.step == 0


def test_a_selection_of_nothing_fails_the_assertions(saved):
    live = Checkpoint(layer=layer())
    with pytest.warns(milepost.UnrestoredWarning, match="only names 'nothing'"):
        status = live.restore(saved, only="nothing")
    with pytest.raises(milepost.UnmatchedError):
        status.assert_consumed()

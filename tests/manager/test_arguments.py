"""What a manager refuses as its arguments, and what it tells of checkpoints that it passed over."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, Variable
from milepost.errors import CorruptCheckpointError, SkippedCheckpointWarning, UnsupportedError, UntrackableError
from tests.manager.runs import new, run

STEP = Variable(0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_to_keep", "3"),
        ("max_to_keep", 2.5),
        ("max_to_keep", True),
        ("keep_checkpoint_every_n_hours", "a"),
        ("keep_checkpoint_every_n_hours", True),
        ("init_fn", 3),
        ("checkpoint_interval", "x"),
        ("checkpoint_interval", -1),
        ("checkpoint_name", 3),
        ("on_sigterm", "yes"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_manager_is_made(tmp_path, name, value):
    given = {"max_to_keep": 2, "step_counter": STEP} | {name: value}
    with pytest.raises(UnsupportedError) as caught:
        CheckpointManager(new(), tmp_path, **given)
    assert caught.value.key == name
    assert repr(value) in caught.value.found
    assert caught.value.expected
    assert caught.value.remedy


def test_metrics_that_are_passed_by_position_are_refused_and_not_left_out(tmp_path):
    with pytest.raises(UnsupportedError, match=r"save\(step, metrics=\{'loss': 0.5\}\)"):
        CheckpointManager(new(), tmp_path, 3).save(7, {"loss": 0.5})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("save", [Checkpoint.save, Checkpoint.write])
@pytest.mark.parametrize("name", ["", ".", "..", "a/", "a/."])
def test_a_prefix_without_a_file_name_is_refused(tmp_path, monkeypatch, save, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedError, match="the prefix has no file name"):
        save(Checkpoint(v=Variable(1)), name)
    with pytest.raises(UnsupportedError, match="the prefix has no file name"):
        milepost.save(name, {"v": 1})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_to_keep", None),
        ("max_to_keep", np.int64(2)),
        ("keep_checkpoint_every_n_hours", 0.5),
        ("keep_checkpoint_every_n_hours", np.float32(2)),
        ("checkpoint_interval", np.int32(2)),
        ("checkpoint_name", "a/b"),
        ("checkpoint_name", ""),
    ],
)
def test_what_tensorflow_accepts_is_accepted(tmp_path, name, value):
    given = {"max_to_keep": 2, "step_counter": STEP} | {name: value}
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, **given)
    assert manager.save() is not None


def test_exchanged_arguments_are_recognised(tmp_path):
    with pytest.raises(UntrackableError, match=r"the order is \(checkpoint, directory, max_to_keep\)"):
        CheckpointManager(str(tmp_path), new(), 3)


def test_a_manager_that_is_given_a_path_names_the_number_to_pass(tmp_path):
    run(tmp_path, 2)
    manager = CheckpointManager(new(), tmp_path, 3)
    with pytest.raises(UnsupportedError) as caught:
        manager.restore(manager.latest_checkpoint)
    assert "pass the number, 2;" in caught.value.remedy


@pytest.mark.parametrize("name", ["restore_latest", "restor"])
def test_a_method_that_a_manager_has_not_is_told_by_name(tmp_path, name):
    with pytest.raises(AttributeError, match=r"restore_or_initialize\(\), or restore\(step\)"):
        getattr(CheckpointManager(new(), tmp_path, 3), name)


def damaged(tmp_path, count, number):
    run(tmp_path, count)
    file = tmp_path / f"ckpt-{number}.data-00000-of-00001"
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)


def test_a_manager_keeps_why_it_passed_over_a_checkpoint(tmp_path):
    damaged(tmp_path, 2, 2)
    manager = CheckpointManager(new(), tmp_path, 3)
    assert manager.skipped == {}
    with pytest.warns(SkippedCheckpointWarning):
        manager.restore_or_initialize()
    assert list(manager.skipped) == [str(tmp_path / "ckpt-2")]
    error = manager.skipped[str(tmp_path / "ckpt-2")]
    assert isinstance(error, CorruptCheckpointError)
    assert error.__traceback__ is None
    assert "restored ckpt-1, skipped 1" in repr(manager)


def test_the_latest_checkpoint_is_found_with_the_reason_for_others(tmp_path):
    damaged(tmp_path, 2, 2)
    manager = CheckpointManager(new(), tmp_path, 3)
    with pytest.warns(SkippedCheckpointWarning):
        assert manager.latest_checkpoint == str(tmp_path / "ckpt-1")
    assert list(manager.skipped) == [str(tmp_path / "ckpt-2")]
    assert "skipped 1" in repr(manager)


def test_the_remedy_for_none_good_works(tmp_path):
    """The damaged checkpoints and the state file are deleted, and the series begins anew."""
    damaged(tmp_path, 1, 1)
    with pytest.warns(SkippedCheckpointWarning), pytest.raises(CorruptCheckpointError) as caught:
        CheckpointManager(new(), tmp_path, 3).restore_or_initialize()
    assert "move or delete the damaged checkpoints together with the state file" in caught.value.remedy
    for file in tmp_path.iterdir():
        file.unlink()
    manager = CheckpointManager(new(), tmp_path, 3)
    assert manager.restore_or_initialize() is None
    assert manager.save() == str(tmp_path / "ckpt-1")

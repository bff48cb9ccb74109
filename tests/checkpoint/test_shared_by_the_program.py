"""Two saved objects of one live object: it takes the values of the first, and those of the second are lost if they differ."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, UnrestoredWarning, Variable
from milepost.checkpoint.checkpoint import view_of
from milepost.engine.options import CheckpointOptions, resolved
from milepost.restoring.load import preview
from tests.objects import module


@pytest.fixture
def path(prefix):
    return Checkpoint(a=Variable([1.0, 1.0]), b=Variable([2.0, 2.0])).write(prefix)


def shared():
    """A program in which both are one."""
    variable = Variable([0.0, 0.0])
    return Checkpoint(a=variable, b=variable)


def test_the_first_counts_and_the_other_is_reported(path):
    live = shared()
    report = live.read(path).expect_partial().report()
    assert live.b.numpy().tolist() == [1, 1]
    (entry,) = report.unexpected
    assert (entry.key, entry.saved) == ("b/.ATTRIBUTES/VARIABLE_VALUE", "float32[2]")
    assert "one live object matches this value and a/.ATTRIBUTES/VARIABLE_VALUE" in entry.note


def test_assert_consumed_fails(path):
    with pytest.raises(milepost.UnmatchedError, match=r"unexpected: b/.ATTRIBUTES/VARIABLE_VALUE"):
        shared().read(path).expect_partial().assert_consumed()


def test_every_live_value_was_restored_all_the_same(path):
    shared().read(path).expect_partial().assert_existing_objects_matched()


def test_a_warning_names_both(path):
    with pytest.warns(UnrestoredWarning, match=r"b/\.ATTRIBUTES.*matches this value and a/\.ATTRIBUTES"):
        shared().read(path)


def test_a_preview_says_it(path):
    live = shared()
    report = preview(path, lambda: view_of(live), resolved(CheckpointOptions()))
    assert [entry.key for entry in report.unexpected] == ["b/.ATTRIBUTES/VARIABLE_VALUE"]
    assert live.a.numpy().tolist() == [0, 0]


@pytest.mark.parametrize("late", ["b", "a and b"])
def test_objects_that_come_late(path, late):
    live, variable = Checkpoint(), Variable([0.0, 0.0])
    if late == "b":
        live.a = variable
    status = live.read(path).expect_partial()
    live.a = variable
    live.b = variable
    assert [entry.key for entry in status.report().unexpected] == ["b/.ATTRIBUTES/VARIABLE_VALUE"]


def test_a_restore_that_fails_leaves_no_trace(prefix, path):
    live = shared()
    live.c = Variable([0.0, 0.0])
    wrong = Checkpoint(a=Variable([1.0, 1.0]), b=Variable([2.0, 2.0]), c=Variable([3.0])).write(f"{prefix}-wrong")
    with pytest.raises(milepost.MismatchError):
        live.read(wrong)
    right = Checkpoint(a=Variable([4.0, 4.0]), b=Variable([4.0, 4.0]), c=Variable([3.0, 3.0])).write(f"{prefix}-right")
    live.read(right).assert_consumed()


def test_equal_values_are_no_loss(prefix):
    path = Checkpoint(a=Variable([1.0, 1.0]), b=Variable([1.0, 1.0])).write(prefix)
    shared().read(path).assert_consumed()


def test_two_paths_to_one_saved_object_are_no_loss(prefix):
    shared().read(shared().write(prefix)).assert_consumed()


def test_a_path_to_the_saved_object_and_one_to_another(prefix):
    variable = Variable(1.0)
    path = Checkpoint(a=variable, b=variable, c=Variable(2.0)).write(prefix)
    live = Variable(0.0)
    report = Checkpoint(a=live, b=live, c=live).read(path).expect_partial().report()
    assert [entry.key for entry in report.unexpected] == ["c/.ATTRIBUTES/VARIABLE_VALUE"]


def test_whole_objects_that_are_one(prefix):
    path = Checkpoint(a=module(v=Variable(1.0), w=Variable(3.0)), b=module(v=Variable(2.0), w=Variable(3.0))).write(
        prefix
    )
    inner = module(v=Variable(0.0), w=Variable(0.0))
    report = Checkpoint(a=inner, b=inner).read(path).expect_partial().report()
    assert [entry.key for entry in report.unexpected] == ["b/v/.ATTRIBUTES/VARIABLE_VALUE"]


def test_a_later_restore_ends_it(prefix, path):
    live = shared()
    first = live.read(path).expect_partial()
    again = Checkpoint(a=Variable([5.0, 5.0]), b=Variable([5.0, 5.0])).write(f"{prefix}-again")
    live.read(again).assert_consumed()
    assert len(first.report().unexpected) == 1


@pytest.mark.parametrize("zero", [np.float32(0), np.zeros(2)], ids=["a number", "an array"])
def test_values_that_the_program_shares_before_it_restores(prefix, zero):
    path = Checkpoint(a=module(v=np.ones_like(zero)), b=module(v=np.full_like(zero, 2))).write(prefix)
    report = Checkpoint(a=module(v=zero), b=module(v=zero)).read(path).expect_partial().report()
    assert [entry.key for entry in report.unexpected] == ["b/v/.ATTRIBUTES/VARIABLE_VALUE"]

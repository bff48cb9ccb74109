"""What a save would leave out is refused, unless it is doubtful or was allowed; a restore counts it as missing."""

import warnings

import numpy as np
import pytest

from milepost import (
    Checkpoint,
    CheckpointOptions,
    MilepostWarning,
    Module,
    NoDependency,
    UnmatchedError,
    UntrackableError,
    UntrackedWarning,
    Variable,
)
from milepost.engine.report import Outcome
from tests.objects import module

OBJECTS = np.array([{}, None], object)


def test_the_error_names_each_omission(tmp_path):
    with pytest.raises(UntrackableError, match="also n/b: an array of objects") as caught:
        Checkpoint(m=module(a=OBJECTS), n=module(b=OBJECTS)).write(tmp_path / "ckpt")
    assert caught.value.key == "m/a"


def test_a_refused_save_writes_nothing(tmp_path):
    with pytest.raises(UntrackableError):
        Checkpoint(m=module(a=OBJECTS)).write(tmp_path / "ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["m/a", "m", ""])
def test_what_is_at_or_below_an_allowed_path_may_be_left_out(tmp_path, path):
    options = CheckpointOptions(allow_unsaved=[path])
    Checkpoint(m=module(a=OBJECTS, b=Variable(1))).write(tmp_path / "ckpt", options)


@pytest.mark.parametrize("path", ["d", "d/1"])
def test_members_under_keys_that_are_no_text_may_be_left_out(tmp_path, path):
    held = {1: 0.5, "a": 1, (2, 3): Variable(1)}
    checkpoint = Checkpoint(d=held)
    with pytest.raises(UntrackableError, match=r"(?s)not a string.*also d/\(2, 3\)"):
        checkpoint.write(tmp_path / "ckpt")
    options = CheckpointOptions(allow_unsaved=[path, "d/(2, 3)"])
    fresh = Checkpoint(d={1: 7, "a": 0})
    status = fresh.read(checkpoint.write(tmp_path / "ckpt", options), options)
    status.assert_consumed().assert_existing_objects_matched()
    assert (fresh.d[1], fresh.d["a"]) == (7, 1)


def test_a_restore_counts_a_member_under_a_key_that_is_no_text_as_missing(tmp_path):
    path = Checkpoint(d={"a": 1}).write(tmp_path / "ckpt")
    with pytest.raises(UnmatchedError, match="d/1"):
        Checkpoint(d={"a": 0, 1: 2}).read(path).assert_existing_objects_matched()


def test_an_allowed_path_is_no_prefix_of_a_name(tmp_path):
    with pytest.raises(UntrackableError):
        Checkpoint(m=module(ab=OBJECTS)).write(tmp_path / "ckpt", CheckpointOptions(allow_unsaved=["m/a"]))


def test_an_allowed_path_that_no_object_has_is_warned_of(tmp_path):
    options = CheckpointOptions(allow_unsaved=["m/b", "m/scael"])
    with pytest.warns(MilepostWarning, match="allow_unsaved names 'm/scael', but no object has this path") as caught:
        Checkpoint(m=module(scale=Variable(1), b=Variable(1))).write(tmp_path / "ckpt", options)
    assert [str(each.message).rpartition("; ")[2] for each in caught] == ["did you mean 'm/scale'?"]


def test_an_allowed_path_is_not_warned_of_if_it_names_an_object(tmp_path):
    """Whether the object is left out may differ from save to save."""
    options = CheckpointOptions(allow_unsaved=["", "m/a", "m/b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint(m=module(a=OBJECTS, b=Variable(1))).write(tmp_path / "ckpt", options)


def test_a_restore_does_not_warn_of_allowed_paths(lacking):
    options = CheckpointOptions(allow_unsaved=["m/a", "m/absent"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint(m=module(a=OBJECTS, b=Variable(0))).read(lacking, options).assert_consumed()


def test_a_doubtful_omission_is_warned_of(tmp_path):
    with pytest.warns(UntrackedWarning, match="^m/a: not saved: an object of type set"):
        Checkpoint(m=module(a={np.float32(1)})).write(tmp_path / "ckpt")


def test_a_doubtful_omission_is_refused_in_a_strict_save(tmp_path):
    with pytest.raises(UntrackableError) as caught:
        Checkpoint(m=module(a={np.float32(1)})).write(tmp_path / "ckpt", CheckpointOptions(strict=True))
    assert caught.value.key == "m/a"


@pytest.fixture
def lacking(tmp_path):
    """A checkpoint that knowingly has nothing of an array that cannot be saved."""
    return Checkpoint(m=module(a=OBJECTS, b=Variable(1))).write(
        tmp_path / "ckpt", CheckpointOptions(allow_unsaved=["m/a"])
    )


def test_live_state_that_cannot_be_saved_is_missing_in_the_report(lacking):
    report = Checkpoint(m=module(a=OBJECTS, b=Variable(0))).read(lacking).report()
    assert [(entry.key, entry.live) for entry in report.of(Outcome.MISSING)] == [("m/a", "ndarray")]


def test_no_assertion_passes_over_live_state_that_cannot_be_saved(lacking):
    status = Checkpoint(m=module(a=OBJECTS, b=Variable(0))).read(lacking)
    with pytest.raises(UnmatchedError):
        status.assert_consumed()
    with pytest.raises(UnmatchedError):
        status.assert_existing_objects_matched()


def test_a_restore_may_allow_it_too(lacking):
    options = CheckpointOptions(allow_unsaved=["m/a"])
    Checkpoint(m=module(a=OBJECTS, b=Variable(0))).read(lacking, options).assert_consumed()


class Helper:
    """A class of a program's own, which is not tracked."""

    def __init__(self, held):
        self.held = held


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (lambda: module(a=Helper(np.zeros(2))), "m/a"),
        (lambda: module(a=Helper([Helper({"b": Variable(1)})])), "m/a"),
        (lambda: module(a=[Helper(np.zeros(2))]), "m/a/0"),
        (lambda: module(a={"b": Helper(np.zeros(2))}), "m/a/b"),
        (lambda: module(a=(Helper(np.zeros(2)), np.zeros(2))), "m/a/0"),
    ],
    ids=["attribute", "nested", "list", "dict", "tuple"],
)
def test_state_in_an_object_of_an_own_class_is_warned_of(made, path, tmp_path):
    with pytest.warns(
        UntrackedWarning, match=f"^{path}: not saved: an object of type Helper .* derive it from milepost.Module"
    ):
        Checkpoint(m=made()).write(tmp_path / "ckpt")


@pytest.mark.parametrize("held", [({np.float32(1)},), (Helper(Variable(1)),)], ids=["set", "object"])
def test_state_in_a_tuple_that_is_not_tracked_is_warned_of(held, tmp_path):
    with pytest.warns(
        UntrackedWarning, match="^m/a: not saved: an object of type tuple .* hold what is in it in attributes"
    ):
        Checkpoint(m=module(a=held)).write(tmp_path / "ckpt")


def test_an_own_object_that_holds_only_what_is_saved_anyway_is_passed_over(tmp_path, recwarn):
    made = module(a=Variable(1))
    made.helper = Helper([made, made.a])
    Checkpoint(m=made).write(tmp_path / "ckpt")
    assert not recwarn.list


def test_an_own_object_that_is_marked_is_passed_over(tmp_path, recwarn):
    Checkpoint(m=module(a=NoDependency(Helper(np.zeros(2))))).write(tmp_path / "ckpt")
    assert not recwarn.list


def test_a_module_whose_state_dict_is_not_called_is_named(tmp_path):
    class Both(Module):
        def state_dict(self):
            return {"seen": 1}

        def load_state_dict(self, state):
            raise NotImplementedError

    with pytest.warns(
        UntrackedWarning, match=r"^m: not saved: an object of type Both is a Module.* its state_dict\(\) is not called"
    ):
        Checkpoint(m=Both()).write(tmp_path / "ckpt")


def test_what_is_allowed_is_passed_over_and_the_rest_is_refused(tmp_path):
    options = CheckpointOptions(allow_unsaved=["m/a"])
    with pytest.raises(UntrackableError) as caught:
        Checkpoint(m=module(a=OBJECTS, b=OBJECTS)).write(tmp_path / "ckpt", options)
    assert caught.value.key == "m/b"

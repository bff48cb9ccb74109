"""What a save would leave out is refused, unless it is doubtful or was allowed; a restore counts it as missing."""

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, UnmatchedError, UntrackableError, UntrackedWarning, Variable
from milepost.engine.report import Outcome
from tests.objects import module

DATES = np.zeros(2, "datetime64[s]")


def test_the_error_names_each_omission(tmp_path):
    with pytest.raises(UntrackableError, match="also n/b: an array of datetime64") as caught:
        Checkpoint(m=module(a=DATES), n=module(b=DATES)).write(tmp_path / "ckpt")
    assert caught.value.key == "m/a"


def test_a_refused_save_writes_nothing(tmp_path):
    with pytest.raises(UntrackableError):
        Checkpoint(m=module(a=DATES)).write(tmp_path / "ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["m/a", "m", ""])
def test_what_is_at_or_below_an_allowed_path_may_be_left_out(tmp_path, path):
    options = CheckpointOptions(allow_unsaved=[path])
    Checkpoint(m=module(a=DATES, b=Variable(1))).write(tmp_path / "ckpt", options)


def test_an_allowed_path_is_no_prefix_of_a_name(tmp_path):
    with pytest.raises(UntrackableError):
        Checkpoint(m=module(ab=DATES)).write(tmp_path / "ckpt", CheckpointOptions(allow_unsaved=["m/a"]))


def test_a_doubtful_omission_is_warned_of(tmp_path):
    with pytest.warns(UntrackedWarning, match="^m/a: not saved: a set"):
        Checkpoint(m=module(a={np.float32(1)})).write(tmp_path / "ckpt")


def test_a_doubtful_omission_is_refused_in_a_strict_save(tmp_path):
    with pytest.raises(UntrackableError) as caught:
        Checkpoint(m=module(a={np.float32(1)})).write(tmp_path / "ckpt", CheckpointOptions(strict=True))
    assert caught.value.key == "m/a"


@pytest.fixture
def lacking(tmp_path):
    """A checkpoint that knowingly has nothing of an array that cannot be saved."""
    return Checkpoint(m=module(a=DATES, b=Variable(1))).write(
        tmp_path / "ckpt", CheckpointOptions(allow_unsaved=["m/a"])
    )


def test_live_state_that_cannot_be_saved_is_missing_in_the_report(lacking):
    report = Checkpoint(m=module(a=DATES, b=Variable(0))).read(lacking).report()
    assert [(entry.key, entry.live) for entry in report.of(Outcome.MISSING)] == [("m/a", "ndarray")]


def test_no_assertion_passes_over_live_state_that_cannot_be_saved(lacking):
    status = Checkpoint(m=module(a=DATES, b=Variable(0))).read(lacking)
    with pytest.raises(UnmatchedError):
        status.assert_consumed()
    with pytest.raises(UnmatchedError):
        status.assert_existing_objects_matched()


def test_a_restore_may_allow_it_too(lacking):
    options = CheckpointOptions(allow_unsaved=["m/a"])
    Checkpoint(m=module(a=DATES, b=Variable(0))).read(lacking, options).assert_consumed()

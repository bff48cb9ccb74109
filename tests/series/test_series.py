"""Which of several checkpoints is the latest, and what is said of a directory without one."""

import os

import pytest

from milepost.series.series import is_inside, known_checkpoints, no_checkpoint_error, with_checkpoint
from milepost.series.state_format import CheckpointState
from milepost.storage import LocalStorage

STORAGE = LocalStorage()


@pytest.fixture
def saved(tmp_path):
    """Makes an index that was saved at a time; returns its prefix."""

    def saved(name, time):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.index").touch()
        os.utime(tmp_path / f"{name}.index", (time, time))
        return str(tmp_path / name)

    return saved


def latest(first, added):
    return with_checkpoint(STORAGE, CheckpointState(first, (first,)), added).model_checkpoint_path


@pytest.mark.parametrize(
    ("first", "added", "is_latest"),
    [
        (("ckpt-2", 100), ("ckpt-1", 101), True),
        (("ckpt-2", 100), ("ckpt-3", 99), False),
        (("ckpt-2", 100), ("ckpt-3", 100), True),
        (("ckpt-10", 100), ("ckpt-9", 100), False),
        (("ckpt-10", 100), ("other-9", 100), True),
        (("ckpt", 100), ("ckpt-9", 100), True),
    ],
)
def test_the_time_decides_and_then_the_number(saved, first, added, is_latest):
    first, added = saved(*first), saved(*added)
    assert latest(first, added) == (added if is_latest else first)


def test_a_checkpoint_that_was_not_listed_is_put_where_its_time_is(saved):
    paths = tuple(saved(f"ckpt-{number}", 100 + number) for number in (1, 3, 4))
    added = saved("ckpt-2", 102)
    state = with_checkpoint(STORAGE, CheckpointState(paths[-1], paths, (101.0, 103.0, 104.0)), added)
    assert list(state.all_model_checkpoint_paths) == [paths[0], added, *paths[1:]]
    assert tuple(state.all_model_checkpoint_timestamps) == (101.0, 102.0, 103.0, 104.0)
    assert state.model_checkpoint_path == paths[-1]


def test_without_times_an_older_one_is_put_before_the_latest(saved):
    paths = tuple(saved(f"ckpt-{number}", 100 + number) for number in (1, 3))
    added = saved("ckpt-2", 102)
    state = with_checkpoint(STORAGE, CheckpointState(paths[-1], paths), added)
    assert list(state.all_model_checkpoint_paths) == [paths[0], added, paths[1]]
    assert tuple(state.all_model_checkpoint_timestamps) == ()


@pytest.mark.parametrize(("count", "found"), [(5, "'{0}-1', "), (6, "6 checkpoints, the last of which are '{0}-2', ")])
def test_an_error_names_at_most_five_checkpoints(saved, tmp_path, count, found):
    for number in range(1, count + 1):
        saved(f"ckpt-{number}", 100)
    error = no_checkpoint_error(STORAGE, str(tmp_path))
    assert error.found.startswith(found.format(tmp_path / "ckpt"))


def test_another_path_to_the_directory_is_the_directory(saved, tmp_path):
    prefix = saved("run/ckpt-1", 100)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert is_inside(STORAGE, str(tmp_path / "run"), prefix)
    assert is_inside(STORAGE, str(tmp_path / "link"), prefix)
    assert not is_inside(STORAGE, str(tmp_path), prefix)


def test_a_file_beside_the_directory_whose_name_begins_like_its_name_is_not_in_it(saved, tmp_path):
    """A checkpoint that was moved into the directory is found there."""
    moved = saved("run/run-1", 100)
    (tmp_path / "run" / "checkpoint").write_text(f'model_checkpoint_path: "{tmp_path}/run-1"\n')
    state = known_checkpoints(STORAGE, str(tmp_path / "run"))
    assert state is not None
    assert state.model_checkpoint_path == moved

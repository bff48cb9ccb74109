"""Fields of named tuples are matched by name, and by position only where no names were saved."""

from typing import NamedTuple

import numpy as np
import pytest

import milepost


class Adam(NamedTuple):
    count: np.ndarray  # type: ignore[assignment]  # hides the method
    mu: np.ndarray


class Momentum(NamedTuple):
    trace: np.ndarray
    count: np.ndarray  # type: ignore[assignment]  # hides the method


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ckpt"


def restored(path, saved, live):
    milepost.Checkpoint(state=saved).write(path)
    checkpoint = milepost.Checkpoint(state=live)
    report = checkpoint.read(path).expect_partial().report()
    return checkpoint.state, [entry.key.split("/.")[0] for entry in report.missing]


def test_a_field_of_another_name_at_the_same_position_is_not_taken_for_it(path):
    state, missing = restored(path, Adam(np.ones(2), np.full(2, 2.0)), Momentum(np.zeros(2), np.zeros(2)))
    assert state.count.tolist() == [1.0, 1.0]
    assert state.trace.tolist() == [0.0, 0.0]
    assert missing == ["state/trace"]


def test_a_plain_tuple_restores_into_a_named_one_by_position(path):
    state, missing = restored(path, (np.ones(2), np.full(2, 2.0)), Adam(np.zeros(2), np.zeros(2)))
    assert state.mu.tolist() == [2.0, 2.0]
    assert missing == []


def test_a_named_tuple_restores_into_a_plain_one_by_position(path):
    state, missing = restored(path, Adam(np.ones(2), np.full(2, 2.0)), (np.zeros(2), np.zeros(2)))
    assert state[1].tolist() == [2.0, 2.0]
    assert missing == []

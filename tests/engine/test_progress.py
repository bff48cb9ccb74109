"""How far an operation is."""

import pytest

from milepost.bundle.counting import counted_by, counter
from milepost.engine import progress
from milepost.engine.progress import reporting


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    return []


def count(size):
    counting = counter()
    assert counting is not None
    counting(size)


def test_what_is_read_twice_or_pads_does_not_run_ahead_of_its_stage(told):
    with reporting(told.append, "save", "ckpt") as report:
        report.begin([100], [[40], [40]])
        for _ in range(2):
            with report.stage():
                count(20)
                count(40)
        report.finish()
    assert [each.bytes_done for each in told] == [0, 25, 50, 75, 100]


def test_nothing_is_counted_after_a_block():
    with counted_by(lambda size: None):
        assert counter() is not None
    assert counter() is None

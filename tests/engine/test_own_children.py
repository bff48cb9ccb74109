"""Which child keeps its own value although saved ones are deferred for it."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from milepost import Checkpoint
from milepost.deferred.own_values import is_own


class Saved(NamedTuple):
    """What is asked of a deferred value."""

    was_passed: bool = False
    is_late: bool = False
    superseded: bool = False


STATE: Any = Checkpoint(x=[])


@pytest.mark.parametrize(
    ("holder", "saved", "expected"),
    [
        (STATE, [Saved(was_passed=True)], True),
        (STATE, [Saved()], False),
        (STATE, [], False),
        (STATE, [Saved(was_passed=True, superseded=True)], False),
        (STATE.x, [Saved()], True),
        (STATE.x, [Saved(is_late=True)], False),
        (STATE.x, [Saved(is_late=True, was_passed=True)], True),
        ({}, [Saved(was_passed=True)], False),
        ([], [Saved()], False),
    ],
)
def test_an_array_of_the_program(holder, saved, expected):
    assert is_own(holder, np.zeros(2), saved) == expected

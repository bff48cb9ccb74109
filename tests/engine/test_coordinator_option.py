"""Which objects are coordinators."""

import types

import pytest

from milepost import CheckpointOptions, UnsupportedError

MEMBERS = ("rank", "size", "library", "post", "wait", "clear")


def coordinator(*members):
    return types.SimpleNamespace(**dict.fromkeys(members, 0))


def test_an_object_with_all_members_is_one():
    made = coordinator(*MEMBERS)
    assert CheckpointOptions(coordinator=made).coordinator is made


@pytest.mark.parametrize("lacking", MEMBERS)
def test_an_object_that_lacks_one_is_none(lacking):
    with pytest.raises(UnsupportedError, match="coordinator"):
        CheckpointOptions(coordinator=coordinator(*(set(MEMBERS) - {lacking})))

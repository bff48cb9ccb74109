"""What is compared of tensors that several processes hold alike."""

import pytest

from milepost.distributed.replicas import ReplicaDifference, difference_of, find_difference


def error_for(first, other):
    return difference_of(ReplicaDifference("0, 1", 0, 1), first, other, 4)


def test_processes_that_hold_the_same_are_alike():
    assert find_difference([{"0, 1": "a"}, {"0, 1": "a"}]) is None


def test_the_first_two_that_differ_are_found():
    assert find_difference([{"0, 1, 2": "a"}, {"0, 1, 2": "a"}, {"0, 1, 2": "b"}]) == ReplicaDifference("0, 1, 2", 0, 2)


def test_the_boxes_that_differ_are_counted():
    error = error_for({"a at (0,)": 1, "b at (0,)": 2, "c at (0,)": 3}, {"a at (0,)": 1, "b at (0,)": 7})
    assert error.key == "b"
    assert error.found == "others on process 1 than on process 0, in b at (0,), and 1 more"


@pytest.mark.parametrize(("first", "key"), [({"a at (0,)": 1}, "a"), ({}, "a")])
def test_something_is_named_also_if_the_reported_boxes_are_equal(first, key):
    assert error_for(first, first).key == key

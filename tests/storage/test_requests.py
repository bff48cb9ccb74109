"""Conditional writes whose answers are lost, or that are refused because of themselves."""

import errno
import os

import pytest

from milepost.storage.objects.requests import content, write_if
from milepost.testing.faulty_bucket import FaultyBucket


def repeated(bucket, number=0):
    """Something on the way repeats a request, so that the answer is that of the second one."""

    def refuse(at):
        if at == number:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    bucket.after = refuse


@pytest.mark.parametrize("present", [None, b"old"])
class TestRepeated:
    def test_a_write_that_was_repeated_is_written(self, present):
        bucket = FaultyBucket()
        if present is not None:
            bucket.put("a", present)
        repeated(bucket, len(bucket.requests) + (present is not None))
        assert write_if(bucket, "a", b"new", present, 0.0)
        assert content(bucket, "a", 0.0)[0] == b"new"

    def test_a_write_that_is_refused_because_of_another_is_not(self, present):
        bucket = FaultyBucket()
        bucket.put("a", b"that of another")
        assert not write_if(bucket, "a", b"new", present, 0.0)
        assert content(bucket, "a", 0.0)[0] == b"that of another"


def test_an_empty_object_may_be_that_of_another():
    bucket = FaultyBucket()
    repeated(bucket)
    assert not write_if(bucket, "a", b"", None, 0.0)


def test_an_empty_object_whose_answer_is_lost_is_written():
    bucket = FaultyBucket()
    bucket.lose(0)
    assert write_if(bucket, "a", b"", None, 0.0)


def test_small_objects_are_read_by_one_request():
    bucket = FaultyBucket()
    bucket.put("a", b"1")
    bucket.requests.clear()
    content(bucket, "a", 0.0)
    assert bucket.requests == ["read a"]

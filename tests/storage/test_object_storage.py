"""What a storage of a store does that others do not: leases, parts, and requests that are made again."""

import errno

import pytest

from milepost.errors import StorageError
from milepost.storage.objects import files
from milepost.testing.faulty_bucket import FaultyBucket
from tests.stores import storage_of


class TestLeases:
    def test_a_file_is_in_use_while_its_process_has_it_open(self):
        bucket = FaultyBucket()
        own, other = storage_of(bucket), storage_of(bucket, lease=-1.0)
        with own.create("note"):
            assert own.in_use("note")
            assert not other.in_use("note")

    def test_a_file_is_in_use_for_others_until_the_lease_is_over(self):
        bucket = FaultyBucket()
        storage_of(bucket).create("note").close()
        assert storage_of(bucket, lease=60.0).in_use("note")
        assert not storage_of(bucket, lease=-1.0).in_use("note")
        assert not storage_of(bucket).in_use("no note")

    def test_a_save_that_makes_progress_keeps_its_notes_alive(self):
        bucket = FaultyBucket()
        storage = storage_of(bucket, lease=0.0)
        with storage.create("note"), storage.create("data") as data:
            before = bucket.head("note").version
            data.write(0, [b"1"])
            assert bucket.head("note").version != before

    def test_a_save_that_was_taken_for_dead_fails_at_its_next_write(self):
        bucket = FaultyBucket()
        storage = storage_of(bucket, lease=0.0)
        with storage.create("note"), storage.create("data") as data:
            bucket.put("note", b"dead")
            with pytest.raises(StorageError, match="taken this save for dead") as caught:
                data.write(0, [b"1"])
        assert caught.value.errno == errno.ESTALE


class TestParts:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(files, "PART", 4)

    def test_a_file_is_sent_in_parts_that_may_come_in_any_order(self):
        bucket = FaultyBucket()
        with storage_of(bucket).create("data") as data:
            data.write(6, [b"6789"])
            data.write(0, [b"01"])
            data.write(2, [b"2345"])
            data.write(10, [b"a"])
            data.sync()
        assert bucket.objects["data"].data == b"0123456789a"

    def test_what_was_sent_is_not_written_again(self):
        with storage_of(FaultyBucket()).create("data") as data:
            data.write(0, [b"0123456"])
            with pytest.raises(StorageError) as caught:
                data.write(2, [b"x"])
            assert caught.value.errno == errno.ESPIPE

    def test_a_file_that_was_removed_is_not_written_when_it_is_closed(self):
        bucket = FaultyBucket()
        storage = storage_of(bucket)
        for text in (b"1", b"0123456789"):
            with storage.create("data") as data:
                data.write(0, [text])
                storage.remove("data")
            assert bucket.objects == {}

    def test_a_file_with_too_many_parts_is_refused(self, monkeypatch):
        monkeypatch.setattr(files, "MOST_PARTS", 2)
        storage = storage_of(FaultyBucket())
        with storage.create("data") as data:
            data.write(0, [b"01234567"])
            with pytest.raises(StorageError, match="larger than a store takes") as caught:
                data.write(8, [b"89ab"])
            storage.remove("data")
            assert caught.value.errno == errno.EFBIG


def test_a_slow_answer_is_asked_for_again():
    bucket = FaultyBucket()
    bucket.put("a", b"1")
    bucket.lose(1)
    assert storage_of(bucket).is_file("a")
    assert bucket.requests == ["put a", "head a", "head a"]

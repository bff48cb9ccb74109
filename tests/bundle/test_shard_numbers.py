"""Checkpoints whose number of data files, in the header and in the names, is larger than the files there are."""

import os

import numpy as np
import pytest

from milepost.bundle import BundleWriter, data_path, index_path, open_bundle, open_whole
from milepost.bundle.catalogue import Catalogue
from milepost.errors import CheckpointNotFoundError
from milepost.storage.default import DEFAULT_STORAGE

NUMBER = 77777


def write(prefix, storage=DEFAULT_STORAGE, number=NUMBER):
    """A checkpoint of two data files under names that say that there are more."""
    writer = BundleWriter(shards=2, named=number)
    writer.add("a", np.arange(3.0))
    writer.add("b", np.arange(4), shard=1)
    writer.add("text", "some text", shard=1)
    for shard in range(2):
        with storage.create(data_path(prefix, shard, number)) as file:
            writer.write_shard(shard, file)
    with storage.create(index_path(prefix)) as file:
        file.write(0, [writer.index()])
    return prefix


@pytest.fixture
def prefix(tmp_path):
    return write(str(tmp_path / "x"))


class TestReading:
    def test_only_files_that_entries_name_are_expected(self, prefix):
        with open_whole(DEFAULT_STORAGE, prefix) as reader:
            assert reader.shard_paths == [data_path(prefix, shard, NUMBER) for shard in range(2)]
            assert reader.verify() == (3, 3)
            assert reader.read("b").tolist() == [0, 1, 2, 3]

    def test_an_open_checkpoint_can_be_read_when_its_files_are_gone(self, prefix):
        with open_whole(DEFAULT_STORAGE, prefix) as reader:
            for path in (index_path(prefix), *reader.shard_paths):
                os.remove(path)
            assert reader.read("a").tolist() == [0, 1, 2]

    def test_a_file_that_an_entry_names_is_missed(self, prefix):
        os.remove(data_path(prefix, 1, NUMBER))
        with open_whole(DEFAULT_STORAGE, prefix) as reader:
            with pytest.raises(CheckpointNotFoundError) as caught:
                reader.check_files()
            assert caught.value.file == data_path(prefix, 1, NUMBER)

    def test_two_catalogues_are_joined_with_the_files_that_there_are(self, prefix, tmp_path):
        other = write(str(tmp_path / "y"), number=88888)
        with open_bundle(DEFAULT_STORAGE, prefix) as one, open_bundle(DEFAULT_STORAGE, other) as two:
            joined = Catalogue.joined([one.catalogue(), two.catalogue()])
            paths = [joined.files[number].path for number in joined.file.tolist()]
        files = [(data_path(prefix, shard, NUMBER), data_path(other, shard, 88888)) for shard in range(2)]
        assert paths[:2] + paths[3:5] == [files[0][0], files[1][0], files[0][1], files[1][1]]


class TestTensorFlow:
    def test_tensorflow_reads_them(self, prefix):
        tf = pytest.importorskip("tensorflow")
        reader = tf.train.load_checkpoint(prefix)
        assert reader.get_tensor("a").tolist() == [0, 1, 2]
        assert reader.get_tensor("text") == b"some text"

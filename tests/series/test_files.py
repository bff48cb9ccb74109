"""The files of a checkpoint are read as milepost writes them."""

import numpy as np
import pytest

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.graph.keys import FILES
from milepost.series import files
from milepost.series.files import file_sizes, problem_of_name, read_files
from tests.bundle.bundles import bundle

BAD_NAMES = [
    *("", ".", "..", "/etc/passwd", "a//b", "a/", "../a", "a/../../b", "a/./b"),
    *("C:/a", "c:a", "a/C:b", "a\\b", "\\\\server\\a", "a\0b", "a\nb", "a\x7fb", "\udcff"),
    *("n" * 256, "n/" * 2049 + "n"),
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_would_mean_a_file_elsewhere_are_refused(name):
    assert problem_of_name(name)


@pytest.mark.parametrize("name", ["a", "a/b.json", ".hidden", "...", "a b", "ü/字", "n" * 255, "12:30"])
def test_other_names_are_not(name):
    assert problem_of_name(name) is None


def test_a_checkpoint_without_files_has_none():
    with bundle({"a": np.zeros(2)}) as reader:
        assert (file_sizes(reader), read_files(reader)) == ({}, {})


@pytest.mark.parametrize("name", [each for each in BAD_NAMES if "\udcff" not in each], ids=ascii)
def test_a_forged_name_is_damage(name):
    with bundle({FILES + name: np.zeros(2, np.uint8)}) as reader:
        for read in (file_sizes, read_files):
            with pytest.raises(CorruptCheckpointError, match="malformed") as caught:
                read(reader)
            assert (caught.value.key, caught.value.file) == (FILES + name, "x")


@pytest.mark.parametrize("value", [np.zeros(2), np.uint8(1), np.array([b"a"], object)], ids=["float", "scalar", "text"])
def test_a_file_that_is_no_array_of_bytes_is_damage(value):
    with bundle({f"{FILES}a": value}) as reader, pytest.raises(CorruptCheckpointError, match="its tensor is"):
        read_files(reader)


def test_a_file_that_is_the_directory_of_another_is_damage():
    with (
        bundle({f"{FILES}a": np.zeros(1, np.uint8), f"{FILES}a/b": np.zeros(1, np.uint8)}) as reader,
        pytest.raises(CorruptCheckpointError, match="directory of another") as caught,
    ):
        read_files(reader)
    assert caught.value.key == f"{FILES}a"


def test_more_than_the_most_bytes_are_not_read(monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 3)
    with bundle({f"{FILES}a": np.zeros(4, np.uint8)}) as reader, pytest.raises(UnsupportedError, match="too large"):
        read_files(reader)

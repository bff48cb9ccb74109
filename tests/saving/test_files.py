"""Which files a save takes, and which it refuses by name."""

import os
import socket
import stat

import numpy as np
import pytest

from milepost.engine.plan import SavePlan, Wholes
from milepost.errors import StorageError, UnsupportedError
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.saving import files
from milepost.saving.files import gathered, with_files
from milepost.tensor import DType

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows makes such files otherwise")


@pytest.fixture
def directory(tmp_path):
    """A directory with a file, and one below it."""
    (tmp_path / "made" / "below" / "empty").mkdir(parents=True)
    (tmp_path / "made" / "vocab.json").write_text("{}")
    (tmp_path / "made" / "below" / "merges").write_bytes(b"\0\1")
    return tmp_path / "made"


def refused(argument):
    with pytest.raises(UnsupportedError) as caught:
        gathered(argument)
    assert caught.value.remedy
    return str(caught.value)


def test_a_directory_is_taken_with_all_that_is_below_it(directory):
    assert gathered({"tokenizer": directory}) == {"tokenizer/vocab.json": b"{}", "tokenizer/below/merges": b"\0\1"}


def test_a_file_and_bytes_have_the_name_that_is_given(directory):
    taken = {"config/a.json": str(directory / "vocab.json"), "b": b"", "c": bytearray(b"c"), "d": memoryview(b"d")}
    assert gathered(taken) == {"config/a.json": b"{}", "b": b"", "c": b"c", "d": b"d"}


def test_none_and_nothing_are_no_files():
    assert (gathered(None), gathered({})) == ({}, {})


@pytest.mark.parametrize("argument", [["a"], "a", {1: b""}], ids=str)
def test_what_is_no_mapping_of_names_is_refused(argument):
    assert "a dict from names" in refused(argument)


@pytest.mark.parametrize("value", [3, None, np.zeros(3), object()], ids=lambda value: type(value).__name__)
def test_what_is_neither_bytes_nor_a_path_is_refused_by_name(value):
    assert "key: files['a']" in refused({"a": value})


def test_text_that_is_no_path_is_refused_with_the_way_to_save_it(tmp_path):
    assert "text.encode()" in refused({"notes": str(tmp_path / "hello")})


@pytest.mark.parametrize("name", ["..", "a/../../b", "/etc/x", "a\\b", "C:/x", "", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(name):
    assert "cannot have the name" in refused({name: b""})


@POSIX
def test_a_file_whose_name_is_not_text_is_refused(directory):
    try:
        (directory / os.fsdecode(b"\xff")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system has no such names")
    assert "cannot have the name" in refused({"a": directory})


def test_two_files_of_one_name_are_refused(directory):
    assert "two files would have the name 'a/vocab.json'" in refused({"a": directory, "a/vocab.json": b""})


def test_a_file_in_the_place_of_a_directory_is_refused():
    assert "'a' would be the directory" in refused({"a": b"", "a/b": b""})


def test_a_directory_without_files_is_refused(directory):
    assert "has no files" in refused({"a": directory / "below" / "empty"})


def test_a_link_that_leads_out_of_the_directory_is_refused(directory, tmp_path):
    (tmp_path / "made-too").mkdir()  # its path begins as that of the directory does
    (tmp_path / "made-too" / "secret").write_text("x")
    (directory / "link").symlink_to(tmp_path / "made-too" / "secret")
    message = refused({"a": directory})
    assert f"{directory}{os.sep}link is a symbolic link that leads out" in message
    assert "key: files['a']" in message


def test_a_link_to_a_directory_is_refused(directory):
    (directory / "below" / "again").symlink_to(directory)
    assert "again is a symbolic link to" in refused({"a": directory}).replace("that leads out of the directory, ", "")
    (directory / "below" / "again").unlink()
    (directory / "again").symlink_to(directory / "below")
    assert "symbolic link to a directory" in refused({"a": directory})


def test_a_link_to_nothing_is_refused(directory):
    (directory / "link").symlink_to(directory / "nothing")
    assert "leads to nothing" in refused({"a": directory})


def test_a_link_inside_and_one_that_the_program_names_are_read(directory, tmp_path):
    (directory / "link").symlink_to("vocab.json")
    (tmp_path / "named").symlink_to(directory / "below")
    assert gathered({"a": directory, "b": tmp_path / "named", "c": directory / "link"}) == {
        "a/vocab.json": b"{}",
        "a/link": b"{}",
        "a/below/merges": b"\0\1",
        "b/merges": b"\0\1",
        "c": b"{}",
    }


@POSIX
def test_devices_fifos_and_sockets_are_refused(directory, tmp_path, monkeypatch):
    os.mkfifo(directory / "fifo")
    assert f"{directory}/fifo is a FIFO" in refused({"a": directory})
    assert "is a FIFO" in refused({"a": directory / "fifo"})
    (directory / "fifo").unlink()
    monkeypatch.chdir(directory)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        assert "is a socket" in refused({"a": directory})
    assert "/dev/zero is a device" in refused({"a": "/dev/zero"})


@POSIX
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_an_error_of_the_storage(directory):
    (directory / "vocab.json").chmod(0)
    with pytest.raises(StorageError) as caught:
        gathered({"a": directory})
    assert str(directory / "vocab.json") in str(caught.value)


class Meanwhile:
    """Does something when a file has been opened, and before it is read."""

    def __init__(self, monkeypatch, action):
        self._fstat, self._action, self._is_done = os.fstat, action, False
        monkeypatch.setattr(files.os, "fstat", self)

    def __call__(self, descriptor):
        facts = self._fstat(descriptor)
        if stat.S_ISREG(facts.st_mode) and not self._is_done:
            self._is_done = True
            self._action()
        return facts


@pytest.mark.parametrize("text", ["other text", "", "[]"], ids=["longer", "shorter", "as long"])
def test_a_file_that_changes_while_it_is_read_is_refused_by_name(text, directory, monkeypatch):
    os.utime(directory / "vocab.json", (1e9, 1e9))
    Meanwhile(monkeypatch, lambda: (directory / "vocab.json").write_text(text))
    with pytest.raises(StorageError, match="has changed while it was read") as caught:
        gathered({"a": directory / "vocab.json"})
    assert (caught.value.key, caught.value.file) == ("a", str(directory / "vocab.json"))


@pytest.mark.parametrize("value", [bytes(4), "file"])
def test_more_bytes_than_the_limit_are_refused_with_the_largest_file(value, directory, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 3)
    (directory / "large").write_bytes(bytes(4))
    message = refused({"a": directory / "large" if value == "file" else value, "b": b"1"})
    assert "5 bytes, of which 'a' has 4" in message


def test_a_large_file_is_refused_before_it_is_read(directory):
    with open(directory / "large", "wb") as file:
        file.truncate(1 << 40)  # of which the disk holds nothing
    assert "1,099,511,627,778 bytes" in refused({"a": directory / "large", "b": b"12"})


def test_a_plan_of_whole_tensors_stays_one():
    """Then millions of tensors take columns, and no object each."""
    float32, array = DType.of("float32"), np.zeros(3, np.float32)
    plan = SavePlan(ObjectGraph(()), Wholes(["w"], [0], [float32], [(3,)]))
    larger, arrays = with_files(plan, [array], {"a": b"12"})
    assert isinstance(larger.writes, Wholes)
    assert [str(each) for each in larger.writes] == ["w float32[3] -> shard 0", ".MILEPOST_FILES/a uint8[2] -> shard 0"]
    assert [each.tobytes() for each in arrays] == [bytes(12), b"12"]
    assert with_files(plan, [array], {}) == (plan, [array])

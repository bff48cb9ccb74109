"""Files of a checkpoint are written below the directory that is named, and nothing else is touched."""

import os
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.checkpoint.output_files import write_files
from milepost.errors import CheckpointExistsError, MilepostError, StorageError, UnsupportedError
from milepost.graph.keys import FILES
from milepost.series.files import read_files
from tests.bundle.bundles import bundle


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_they_get_their_names_and_bytes(tmp_path):
    files = {"tokenizer/a.json": b"{}", "tokenizer/below/b": b"", "c": b"\0"}
    write_files(files, tmp_path / "new" / "deep")
    assert contents(tmp_path / "new" / "deep") == files


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("aA./\\:~ \0\n-", max_size=9), max_size=4, unique=True))
def test_whatever_names_a_checkpoint_has_nothing_else_is_written(names):
    """Either the names are refused, or the files have them, in the directory."""
    with tempfile.TemporaryDirectory() as above:
        files = {name: str(number).encode() for number, name in enumerate(names)}
        try:
            with bundle({FILES + name: np.frombuffer(data, np.uint8) for name, data in files.items()}) as reader:
                write_files(read_files(reader), f"{above}/inside")
        except MilepostError:
            assert os.listdir(above) in ([], ["inside"])
        else:
            assert contents(pathlib.Path(above)) == {f"inside/{name}": data for name, data in files.items()}


def test_equal_files_stay_as_they_are(tmp_path):
    write_files({"a": b"1"}, tmp_path)
    before = os.stat(tmp_path / "a")
    write_files({"a": b"1", "b": b"2"}, tmp_path)
    assert os.stat(tmp_path / "a").st_ino == before.st_ino
    assert contents(tmp_path) == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("name", ["b", "d/b"])
def test_a_file_with_other_bytes_is_not_replaced_and_nothing_is_written(name, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(CheckpointExistsError, match="other contents") as caught:
        write_files({"a": b"1", name: b"2222"}, tmp_path)
    assert caught.value.file == str(tmp_path / name)
    assert contents(tmp_path) == {name: b"mine"}


def test_a_directory_under_the_name_of_a_file_is_not_replaced(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(CheckpointExistsError):
        write_files({"a": b""}, tmp_path)


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path):
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises((StorageError, CheckpointExistsError)):
        write_files({"a/b": b""}, tmp_path)
    assert contents(tmp_path) == {"a": b"mine"}


@pytest.mark.parametrize("name", ["link/b", "link", "d/link/e/f"])
def test_no_link_in_the_directory_is_followed(name, tmp_path):
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    (target / "d").mkdir(parents=True)
    elsewhere.mkdir()
    for path in (target / "link", target / "d" / "link"):
        path.symlink_to(elsewhere if name != "link" else elsewhere / "file")
    with pytest.raises(CheckpointExistsError, match="symbolic link"):
        write_files({"a": b"1", name: b"2"}, target)
    assert (contents(elsewhere), contents(target)) == ({}, {})


def test_the_directory_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_files({"d/a": b"1"}, tmp_path / "link")
    assert contents(tmp_path / "real") == {"d/a": b"1"}


def test_a_name_that_no_file_can_have_here_is_an_error_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("milepost.storage.paths.os.name", "nt")
    with pytest.raises(StorageError, match="Windows takes 'nul' for a device"):
        write_files({"a": b"", "d/nul": b""}, tmp_path)
    monkeypatch.undo()
    assert contents(tmp_path) == {}


def test_a_url_is_no_directory():
    with pytest.raises(UnsupportedError, match="a URL is not a path"):
        write_files({"a": b""}, "gs://bucket/files")


def test_a_file_that_cannot_be_written_leaves_nothing_under_its_name(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("milepost.storage.output_file.os.replace", refuse)
    with pytest.raises(StorageError):
        write_files({"a": b"1"}, tmp_path)
    assert os.listdir(tmp_path) == []

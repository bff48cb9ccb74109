"""Paths that are none of this machine's, and paths that are none at all."""

import errno
import os
import pathlib

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.errors import CheckpointNotFoundError, StorageError, UnsupportedError
from milepost.storage import LocalStorage, MemoryStorage
from milepost.storage.default import anchored

ELSEWHERE = [
    "gs://bucket/run",
    "gs://bucket",
    "az://bucket/run",
    "hf://user/model",
    "abfs+x.y-z://run",
    "~/run",
    "~",
    "~somebody/run",
    pathlib.Path("gs://bucket/run"),
]


def checkpoint():
    return Checkpoint(v=Variable(1.0))


def net():
    module = milepost.Module()
    module.v = Variable(1.0)
    return module


ENTRIES = {
    "save": lambda path: checkpoint().save(path),
    "save asynchronously": lambda path: checkpoint().save(path, CheckpointOptions(enable_async=True)),
    "write": lambda path: checkpoint().write(path),
    "restore": lambda path: checkpoint().restore(path),
    "read": lambda path: checkpoint().read(path),
    "CheckpointManager": lambda path: CheckpointManager(checkpoint(), path, 3),
    "latest_checkpoint": milepost.latest_checkpoint,
    "get_checkpoint_state": milepost.get_checkpoint_state,
    "update_checkpoint_state": lambda path: milepost.tensorflow1.update_checkpoint_state(path, "ckpt-1"),
    "update_checkpoint_state to it": lambda path: milepost.tensorflow1.update_checkpoint_state("run", path),
    "load_checkpoint": milepost.load_checkpoint,
    "load_variable": lambda path: milepost.load_variable(path, "v"),
    "list_variables": milepost.list_variables,
    "CheckpointReader": milepost.CheckpointReader,
    "CheckpointView": milepost.CheckpointView,
    "remove_checkpoint": milepost.tensorflow1.remove_checkpoint,
    "checkpoint_exists": milepost.tensorflow1.checkpoint_exists,
    "get_checkpoint_mtimes": lambda path: milepost.tensorflow1.get_checkpoint_mtimes([path]),
    "checkpoints_iterator": lambda path: next(milepost.checkpoints_iterator(path, timeout=0)),
    "write of a root": lambda path: milepost.Checkpoint(net()).write(path),
    "read into a root": lambda path: milepost.Checkpoint(net()).read(path),
}


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", ELSEWHERE, ids=str)
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_path_of_another_place_is_refused_everywhere(entry, path, tmp_path):
    """No directory of the scheme or of the tilde is made, and nobody is told that there is no checkpoint."""
    with pytest.raises(UnsupportedError) as caught:
        ENTRIES[entry](path)
    assert caught.value.remedy
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["gs://bucket/run", "~/run"])
def test_trees_of_jax_too(path, tmp_path):
    """The functions for pytrees go the same way."""
    trees = pytest.importorskip("milepost.jax")
    for entry in (
        lambda: trees.save(path, {"v": np.ones(1)}),
        lambda: trees.restore(path, {"v": np.ones(1)}),
        lambda: trees.TreeManager(path),
    ):
        with pytest.raises(UnsupportedError):
            entry()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["~/run", "gs://bucket/run"])
def test_the_command_says_so(path, capsys):
    """The command line ends with the error's text and no traceback."""
    from milepost.tools.cli import main

    for command in ("ls", "show", "verify", "graph"):
        assert main([command, path]) == 3
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert path in error
        assert "remedy: " in error


@pytest.mark.parametrize(
    "path", ["./~/run/ckpt", "./gs:/run/ckpt", "run~/ckpt", "run/~/ckpt", "12:30/ckpt", "a:b/ckpt"]
)
def test_directories_that_really_have_such_names(path):
    """What the remedy says works, and a tilde or a colon elsewhere means nothing."""
    saved = checkpoint().save(path)
    assert saved == f"{path}-1"
    assert milepost.latest_checkpoint(os.path.dirname(path)) == saved
    checkpoint().restore(saved).assert_consumed()


def test_a_storage_of_ones_own_gives_paths_its_own_meaning():
    """URLs are refused by this machine's storage alone."""
    options = CheckpointOptions(storage=MemoryStorage())
    saved = checkpoint().save("gs://bucket/ckpt", options)
    assert saved == "gs://bucket/ckpt-1"
    assert milepost.latest_checkpoint("gs://bucket", options=CheckpointOptions(storage=options.storage)) == saved


IMPOSSIBLE = {
    "null character": "nul\0",
    "null character in a directory's name": "nul\0/x",
    "too long": "x" * 300,
    "too long in all": "x/" * 3000 + "x",
    "a link to itself": "loop/x",
    "below a file": "file/x",
    "no encoding": "\ud800",
}


@pytest.fixture
def _obstacles(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_bytes(b"")


@pytest.mark.usefixtures("_obstacles")
@pytest.mark.parametrize("path", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
class TestPathsThatCannotBe:
    def test_reading_finds_nothing(self, path):
        """A path that cannot exist is one that does not exist."""
        for read in (milepost.load_checkpoint, milepost.CheckpointReader, lambda path: checkpoint().restore(path)):
            with pytest.raises(CheckpointNotFoundError):
                read(path)
        assert milepost.latest_checkpoint(path) is None
        assert not milepost.tensorflow1.checkpoint_exists(path)
        assert milepost.tensorflow1.get_checkpoint_mtimes([path]) == []

    def test_writing_is_refused_and_the_number_given_back(self, path, tmp_path):
        """The error is milepost's, and the next save works under the number that the failed one did not use."""
        before = sorted(os.listdir(tmp_path))
        own = checkpoint()
        with pytest.raises((StorageError, milepost.StateFileError)):
            own.save(path)
        with pytest.raises(StorageError):
            own.write(path)
        with pytest.raises((StorageError, milepost.StateFileError)):
            milepost.tensorflow1.update_checkpoint_state(path, "ckpt-1")
        assert own.save("good") == "good-1"
        assert set(before) <= set(os.listdir(tmp_path))

    def test_a_state_file_that_names_it(self, path):
        """The newest checkpoint that can exist is found, and who opens the directory is not kept out."""
        if path == "\ud800":
            pytest.skip("a state file is UTF-8, and has no such text")
        good = checkpoint().save("run/ckpt")
        with open("run/checkpoint", "w", encoding="utf-8") as file:
            quoted = path.replace("\0", "\\000")
            file.write(f'model_checkpoint_path: "../{quoted}"\n')
            file.write(f'all_model_checkpoint_paths: "ckpt-1"\nall_model_checkpoint_paths: "../{quoted}"\n')
        assert milepost.latest_checkpoint("run") == good
        fresh = checkpoint()
        with pytest.warns(milepost.MilepostWarning, match="ever removed"):
            manager = CheckpointManager(fresh, "run", 3)
        assert manager.restore_or_initialize() == good


class TestAnchored:
    def test_relative_paths_stay_where_they_were(self, tmp_path):
        """A storage that is anchored goes on in the directory of that moment, under the names that it is given."""
        storage = anchored(LocalStorage(), "f")
        os.mkdir("below")
        os.chdir("below")
        with storage.create("f") as file:
            assert file.path == "f"
        storage.rename("f", "g")
        assert (tmp_path / "g").is_file()
        assert storage.list("") == storage.list(".") == ["below", "g"]
        assert storage.is_file("g")
        assert storage.open("g").path == "g"

    def test_nothing_to_do(self, tmp_path):
        """An absolute path, and a storage that has no current directory, need none."""
        local, memory = LocalStorage(), MemoryStorage()
        assert anchored(local, str(tmp_path)) is local
        assert anchored(memory, "f") is memory

    def test_a_current_directory_that_is_gone(self, tmp_path):
        """A relative path means nothing then, which is milepost's error; an absolute one works."""
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir(tmp_path / "gone")
        own = checkpoint()
        with pytest.raises(CheckpointNotFoundError):
            own.save("ckpt")
        with pytest.raises(CheckpointNotFoundError):
            CheckpointManager(own, "run", 3)
        assert own.save(str(tmp_path / "ckpt")) == str(tmp_path / "ckpt-1")


def test_errors_keep_their_number():
    """What a save cannot write for the name's sake has the system's number and a remedy."""
    with pytest.raises(StorageError, match="File name too long") as caught:
        checkpoint().write("x" * 300)
    assert caught.value.errno == errno.ENAMETOOLONG
    assert "shorter" in str(caught.value.remedy)


@pytest.mark.parametrize("name", ["sub/../ckpt", "sub/../m/ckpt", "./a/../../b/../ckpt"])
def test_a_path_through_a_directory_that_does_not_exist_is_refused_with_its_name(tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(milepost.StorageError, match=r"does not exist, and a \.\. follows it(.|\n)*remedy: make "):
        milepost.Checkpoint(v=milepost.Variable(1.0)).save(name)
    assert [*tmp_path.rglob("*")] == [tmp_path / "here"]


def test_a_save_in_a_current_directory_that_was_removed_says_so(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    with pytest.raises(milepost.MilepostError, match=r"current directory(.|\n)*os\.chdir"):
        milepost.Checkpoint(v=milepost.Variable(1.0)).save("ckpt")


def test_a_list_of_lost_checkpoints_is_not_looked_for_one_by_one(tmp_path):
    class Counting(LocalStorage):
        looks = 0

        def modified(self, path):
            Counting.looks += 1
            return super().modified(path)

    milepost.Checkpoint(v=milepost.Variable(1.0)).save(tmp_path / "ckpt")
    lost = "".join(f'all_model_checkpoint_paths: "ckpt-{number}"\n' for number in range(2000, 1, -1))
    (tmp_path / "checkpoint").write_text(
        f'model_checkpoint_path: "ckpt-1"\n{lost}all_model_checkpoint_paths: "ckpt-1"\n'
    )
    options = milepost.CheckpointOptions(storage=Counting())
    manager = milepost.CheckpointManager(milepost.Checkpoint(v=milepost.Variable(0.0)), tmp_path, 3, options=options)
    manager.restore_or_initialize()
    manager.save()
    assert manager.checkpoints == [f"{tmp_path}/ckpt-1", f"{tmp_path}/ckpt-2"]
    assert Counting.looks < 100

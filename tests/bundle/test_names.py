import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.bundle import data_path, find_prefixes, index_path, open_bundle, parse_data_path
from milepost.bundle.format.names import locate
from milepost.errors import CheckpointNotFoundError
from milepost.storage import LocalStorage
from tests.bundle.bundles import put, write


@pytest.fixture
def storage():
    return LocalStorage()


@pytest.fixture
def directory(tmp_path, storage):
    """Three checkpoints, a state file, and a graph beside one of them."""
    for number in (2, 9, 10):
        write(storage, f"{tmp_path}/ckpt-{number}", {"x": number})
    put(storage, f"{tmp_path}/checkpoint", b'model_checkpoint_path: "ckpt-10"')
    put(storage, f"{tmp_path}/ckpt-9.meta", b"graph")
    put(storage, f"{tmp_path}/train.pt", b"weights")
    return str(tmp_path)


class TestPaths:
    def test_shards_have_five_digits_or_more(self):
        """Larger numbers are not cut."""
        assert data_path("x", 3, 123456) == "x.data-00003-of-123456"

    @given(st.text(), st.integers(0, 10**6), st.integers(1, 10**6))
    def test_data_paths_are_parsed(self, prefix, shard, more):
        """Whatever the prefix, the name says which shard of which checkpoint it is."""
        assert parse_data_path(data_path(prefix, shard, shard + more)) == (prefix, shard, shard + more)

    @pytest.mark.parametrize(
        "path",
        [
            "x",
            "x.index",
            "x.data-0-of-1",
            "x.data-00001-of-00001",
            "x.data-000000-of-00001",
            "x.data-00000-of-00001.tempstate123",
            "x.data-00000-of-00000",
        ],
    )
    def test_other_names_are_no_data_paths(self, path):
        """Names that no writer gives are left alone."""
        assert parse_data_path(path) is None


class TestLocate:
    def test_a_prefix(self, storage, directory):
        """A prefix is found by its index."""
        assert locate(storage, f"{directory}/ckpt-2").files == (f"{directory}/ckpt-2.index",)

    def test_an_index_is_understood_as_its_prefix(self, storage, directory):
        """Shells complete file names, not prefixes."""
        assert locate(storage, f"{directory}/ckpt-2.index").prefix == f"{directory}/ckpt-2"
        assert open_bundle(storage, f"{directory}/ckpt-2.index").read("x") == 2

    @pytest.mark.parametrize("name", ["a[1]", "[ab]", "w?at*", "**", "x.index", " ", "ünï", "a\\b", "%s"])
    def test_every_name_is_a_plain_name(self, storage, directory, name):
        """No character of a prefix has a meaning, not even the end of another prefix's index."""
        write(storage, f"{directory}/{name}", {"y": 5})
        reader = open_bundle(storage, f"{directory}/{name}")
        assert (reader.prefix, reader.read("y")) == (f"{directory}/{name}", 5)

    def test_a_pattern_matches_nothing(self, storage, directory):
        """What would match as a pattern is not found as a name."""
        with pytest.raises(CheckpointNotFoundError):
            open_bundle(storage, f"{directory}/ckpt-?")

    def test_a_path_object(self, storage, tmp_path):
        """Paths need not be strings."""
        write(storage, f"{tmp_path}/x", {"y": 5})
        assert open_bundle(storage, tmp_path / "x").keys() == ["y"]

    def test_names_without_directory(self, storage, tmp_path, monkeypatch):
        """A prefix in the working directory needs no directory in its name."""
        monkeypatch.chdir(tmp_path)
        write(storage, "x", {"y": 5})
        assert open_bundle(storage, "x").read("y") == 5
        assert find_prefixes(storage, "") == ["x"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("path", "problem", "remedy"),
        [
            ("", "is a directory", "latest_checkpoint(...), or one of: .../ckpt-10', .../ckpt-9', .../ckpt-2'"),
            ("/ckpt", "no such checkpoint", "adds a number to the prefix; pass one of: .../ckpt-10'"),
            ("/ckpt-3", "no such checkpoint", "pass one of those in this directory: .../ckpt-10', .../ckpt-9'"),
            ("/ckqt-9", "no such checkpoint", "did you mean .../ckpt-9'"),
            ("/train.tp", "no such checkpoint", "did you mean .../train.pt'?"),
            ("/ckpt-9.data-00000-of-00001", "is a data file", "pass .../ckpt-9'"),
            ("/ckpt-9.meta", "is the graph file of", "pass .../ckpt-9'"),
            ("/checkpoint", "is the state file of a directory", "pass latest_checkpoint("),
            ("/no/such/ckpt", "its directory does not exist", "check the path"),
        ],
    )
    def test_one_error_for_each(self, storage, directory, path, problem, remedy):
        """What is given instead of a prefix is named, and so is what to give."""
        with pytest.raises(CheckpointNotFoundError) as caught:
            open_bundle(storage, directory + path)
        assert problem in caught.value.problem
        assert caught.value.file == directory + path
        position = 0
        for part in remedy.split("..."):
            position = caught.value.remedy.index(part, position)

    def test_a_file_where_the_directory_should_be(self, storage, directory):
        """It may be the checkpoint itself."""
        with pytest.raises(CheckpointNotFoundError, match="what would be its directory is a file") as caught:
            open_bundle(storage, f"{directory}/train.pt/ckpt-1")
        assert f"if '{directory}/train.pt' is the checkpoint, pass it alone" in caught.value.remedy

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX'")
    def test_a_pipe_is_no_misspelt_name(self, tmp_path):
        """The path that was given is not offered again."""
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(CheckpointNotFoundError, match="neither a file nor a directory") as caught:
            milepost.load_checkpoint(tmp_path / "pipe")
        assert "pass that file" in caught.value.remedy

    def test_a_directory_where_the_index_should_be(self, storage, directory):
        """The path that was given is not offered again."""
        storage.make_directory(f"{directory}/ckpt-3.index")
        with pytest.raises(CheckpointNotFoundError, match="what has the name of its index is not a file") as caught:
            open_bundle(storage, f"{directory}/ckpt-3")
        assert caught.value.found == "a directory"

    def test_data_without_index(self, storage, directory):
        """A save that was cut off is told apart from none."""
        storage.remove(f"{directory}/ckpt-9.index")
        for path in ("ckpt-9", "ckpt-9.data-00000-of-00001"):
            with pytest.raises(CheckpointNotFoundError) as caught:
                open_bundle(storage, f"{directory}/{path}")
            assert "index" in str(caught.value)

    def test_a_saved_model(self, storage, directory):
        """The checkpoint inside a SavedModel is named."""
        storage.make_directory(f"{directory}/model/variables")
        write(storage, f"{directory}/model/variables/variables", {"x": 1})
        with pytest.raises(CheckpointNotFoundError, match="model/variables/variables"):
            open_bundle(storage, f"{directory}/model")

    def test_an_empty_directory(self, storage, tmp_path):
        """There is nothing to suggest where there is nothing."""
        with pytest.raises(CheckpointNotFoundError, match="no checkpoint in it"):
            open_bundle(storage, tmp_path)
        with pytest.raises(CheckpointNotFoundError, match="nothing of a similar name"):
            open_bundle(storage, tmp_path / "x")

    def test_files_of_other_libraries_are_not_denied(self, storage, tmp_path):
        """A directory of such files does hold checkpoints."""
        (tmp_path / "weights.npz").write_bytes(b"PK")
        with pytest.raises(CheckpointNotFoundError, match="nothing of a similar name") as caught:
            open_bundle(storage, tmp_path / "xyzzy")
        assert "no checkpoint" not in caught.value.remedy

    def test_few_of_many_are_suggested(self, storage, tmp_path):
        """An error does not list a thousand checkpoints, only the newest."""
        for number in range(20):
            put(storage, index_path(f"{tmp_path}/c-{number}"), b"")
        with pytest.raises(CheckpointNotFoundError, match=r"c-19.*c-15', \.\.\.$"):
            open_bundle(storage, tmp_path / "c")


class TestFindPrefixes:
    def test_numbers_count(self, storage, directory):
        """10 comes after 9."""
        assert find_prefixes(storage, directory) == [f"{directory}/ckpt-{n}" for n in (2, 9, 10)]

    def test_no_directory_has_none(self, storage):
        """What does not exist holds nothing."""
        assert find_prefixes(storage, "/no/such/directory") == []

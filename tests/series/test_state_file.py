"""The state file: its text format, its rules about paths, and TensorFlow reading and writing the same files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st

from milepost import CheckpointOptions, get_checkpoint_state
from milepost.errors import MilepostWarning, StateFileError, StorageError
from milepost.series.state_file import record_state
from milepost.series.state_format import CheckpointState, format_state, parse_state
from milepost.storage import LocalStorage, MemoryStorage
from milepost.tensorflow1 import update_checkpoint_state

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = text.filter(bool)
times = st.floats(allow_nan=False)
states = st.builds(
    CheckpointState,
    names,
    st.lists(text, max_size=4).map(tuple),
    st.lists(times, max_size=4).map(tuple),
    times.map(lambda time: time + 0.0),  # -0.0 is written as nothing
)

unicode_text = pytest.mark.skipif(
    "é" not in text_format.MessageToString(StringValue(value="é")),
    reason="this protobuf writes all but printable ASCII in octal, and knows no escapes for more",
)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def write(directory: Path, content: bytes) -> Path:
    (directory / "checkpoint").write_bytes(content)
    return directory


class TestParse:
    @pytest.mark.parametrize(
        ("written", "path"),
        [
            (rb'"a\"b\\c\n"', 'a"b\\c\n'),
            (rb'"\303\251"', "é"),
            ('"é\N{GRINNING FACE}"'.encode(), "é\N{GRINNING FACE}"),
            pytest.param(rb'"\x41\u00e9\U0001f600"', "Aé\N{GRINNING FACE}", marks=unicode_text),
            (b"'it is \"quoted\"'", 'it is "quoted"'),
            (b'"a" \'b\'\n  "c"', "abc"),
            (b'"x" # what follows is a comment: "y"', "x"),
            (rb'"C:\runs\ckpt"', "C:\runs\\ckpt"),
            (b'"first"\nmodel_checkpoint_path: "last"', "last"),
        ],
    )
    @pytest.mark.filterwarnings("error")
    def test_every_way_to_write_a_string(self, written: bytes, path: str) -> None:
        """Escapes, octal, raw UTF-8, both quotes, adjacent strings and comments are understood."""
        assert parse_state(b"model_checkpoint_path: " + written, "f").model_checkpoint_path == path

    def test_lists_and_numbers(self) -> None:
        """Repeated fields may be written one by one or as a list; numbers in any notation."""
        state = parse_state(
            b"""# comment
            all_model_checkpoint_paths: ["a", 'b'], model_checkpoint_path: "c"
            all_model_checkpoint_paths: "c"; all_model_checkpoint_timestamps: [1, 2.5e3, inf]
            last_preserved_timestamp: 3f""",
            "f",
        )
        assert state == CheckpointState("c", ("a", "b", "c"), (1.0, 2500.0, float("inf")), 3.0)

    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b'model_checkpoint_path: "x"\nstrange: 1', "line 2"),
            (b'model_checkpoint_path: "x"\n\n all_model_checkpoint_paths: "\xff"', "line 3"),
            (b'model_checkpoint_path: "x', "line 1"),
            (b'model_checkpoint_path: "\\377"', "line 1"),
            (b'\nmodel_checkpoint_path: "\\777"', "line 2"),
            (b"\0\1\2\3", "line 1"),
            (b"model_checkpoint_path: 7", "line 1"),
            (b'last_preserved_timestamp: "x"', "line 1"),
            (b'all_model_checkpoint_paths: "x"', "malformed"),
            (b"", "malformed"),
            (b"\0\n", "line 1"),
        ],
    )
    def test_what_is_not_understood_is_an_error_that_names_the_line(self, content: bytes, line: str) -> None:
        """Unlike TensorFlow, which would say nothing and let training start anew."""
        with pytest.raises(StateFileError, match=line) as caught:
            parse_state(content, "run/checkpoint")
        assert caught.value.file == "run/checkpoint"
        assert caught.value.expected
        assert caught.value.found
        assert "update_checkpoint_state" in str(caught.value)

    @given(st.binary(max_size=60) | text.map(lambda text: f"model_checkpoint_path: {text}".encode()))
    def test_arbitrary_bytes_give_a_state_or_our_error(self, content: bytes) -> None:
        """Nothing that a file can contain makes anything else happen."""
        try:
            assert parse_state(content, "f").model_checkpoint_path
        except StateFileError:
            pass

    @given(states)
    def test_what_is_written_is_read_back(self, state: CheckpointState) -> None:
        """Any path and any time survive."""
        assert parse_state(format_state(state), "f") == state

    def test_a_path_that_is_not_unicode_cannot_be_recorded(self) -> None:
        """Text format holds UTF-8 only, and the error says so."""
        with pytest.raises(StateFileError, match="cannot hold"):
            format_state(CheckpointState("\udcff"))


class TestGet:
    def test_none_where_there_is_no_file(self, tmp_path: Path) -> None:
        """No directory, or no file: no state."""
        assert get_checkpoint_state(tmp_path / "missing") is None
        assert get_checkpoint_state(tmp_path) is None

    def test_a_directory_of_that_name_counts_as_none_with_a_warning(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoint").mkdir()
        with pytest.warns(MilepostWarning, match="checkpoint is a directory"):
            assert get_checkpoint_state(tmp_path) is None
        with pytest.raises(StateFileError, match="rename that directory"):
            update_checkpoint_state(tmp_path, tmp_path / "ckpt-1")

    def test_a_named_pipe_is_no_state_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "checkpoint")
        with pytest.raises(StateFileError) as caught:
            get_checkpoint_state(tmp_path)
        assert (caught.value.expected, caught.value.found) == ("a file", "not a regular file")

    @pytest.mark.parametrize(
        ("directory", "joined"), [("d", "d/ckpt-1"), ("d/", "d/ckpt-1"), (".", "./ckpt-1"), ("", "ckpt-1")]
    )
    def test_relative_paths_are_joined_to_the_directory_as_passed(
        self, directory: str, joined: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The caller gets back the kind of path that was passed."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "d").mkdir()
        for place in (tmp_path, tmp_path / "d"):
            write(place, b'model_checkpoint_path: "ckpt-1" all_model_checkpoint_paths: ["/x/ckpt-0", "ckpt-1"]')
        state = get_checkpoint_state(directory)
        assert state == CheckpointState(joined, ("/x/ckpt-0", joined))

    def test_the_file_may_have_another_name(self, tmp_path: Path) -> None:
        """TensorFlow 1 could keep several series in a directory."""
        update_checkpoint_state(tmp_path, tmp_path / "x-1", latest_filename="other")
        assert get_checkpoint_state(tmp_path) is None
        state = get_checkpoint_state(tmp_path, "other")
        assert state is not None
        assert state.model_checkpoint_path == str(tmp_path / "x-1")

    def test_a_file_that_cannot_be_a_state_file_is_not_read(self, tmp_path: Path) -> None:
        """A checkpoint of that name, for example, is not read into memory."""
        with (tmp_path / "checkpoint").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(StateFileError, match="malformed"):
            get_checkpoint_state(tmp_path)

    def test_a_file_that_cannot_be_read_is_an_error(self, tmp_path: Path) -> None:
        """It is not taken for a missing one."""

        class Refusing(LocalStorage):
            def open(self, path: str) -> Any:
                raise StorageError("refused", errno=errno.EACCES, file=path)

        with pytest.raises(StorageError):
            get_checkpoint_state(tmp_path, options=CheckpointOptions(storage=Refusing()))


class TestUpdate:
    def test_the_latest_is_added_to_all(self, tmp_path: Path) -> None:
        """Unless it is the last of them already; the caller's list stays as it is."""
        mine = ["a"]
        update_checkpoint_state(tmp_path, "b", mine)
        state = get_checkpoint_state(tmp_path)
        assert state is not None
        assert state.newest_first() == [f"{tmp_path}/b", f"{tmp_path}/a"]
        assert mine == ["a"]

    def test_timestamps_must_match(self, tmp_path: Path) -> None:
        """One for each path, the added one included."""
        with pytest.raises(ValueError, match="2 checkpoint paths"):
            update_checkpoint_state(tmp_path, "b", ["a"], all_model_checkpoint_timestamps=[1.0])
        assert get_checkpoint_state(tmp_path) is None

    @pytest.mark.parametrize("directory", ["d", "{}/d"])
    def test_a_checkpoint_in_the_place_of_the_state_file_is_refused(
        self, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It would be overwritten by its own record."""
        monkeypatch.chdir(tmp_path)
        directory = directory.format(tmp_path)
        with pytest.raises(RuntimeError, match="path of the state file"):
            update_checkpoint_state(directory, directory + "/checkpoint")

    def test_recorded_paths_are_relative(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """However the directory was passed, it can be moved afterwards."""
        monkeypatch.chdir(tmp_path)
        for directory in (str(tmp_path / "d"), "d", "./d/", Path("d")):
            base = os.fspath(directory)
            record_state(directory, CheckpointState(f"{base}/ckpt-2", (f"{base}/ckpt-1", f"{base}/ckpt-2")))
            assert (tmp_path / "d/checkpoint").read_text() == (
                'model_checkpoint_path: "ckpt-2"\n'
                'all_model_checkpoint_paths: "ckpt-1"\n'
                'all_model_checkpoint_paths: "ckpt-2"\n'
            )

    def test_any_storage(self) -> None:
        """State lives where the checkpoints live."""
        storage = MemoryStorage()
        update_checkpoint_state("run", "run/ckpt-1", options=CheckpointOptions(storage=storage))
        assert storage.list("run") == ["checkpoint"]
        assert get_checkpoint_state("run", options=CheckpointOptions(storage=storage)) == CheckpointState(
            "run/ckpt-1", ("run/ckpt-1",)
        )


class TestTensorFlow:
    @pytest.mark.parametrize("absolute", [False, True])
    @pytest.mark.parametrize(
        ("path", "others", "times", "preserved"),
        [
            ("{}/x-1", None, None, None),
            ("x-1", None, None, None),
            ("{}/x-2", ["{}/x-1"], None, 0.0),
            ("{}/x-2", ["/abs/x-1", "{}/x-2"], [1.5, 1795235640.4459484], 1e22),
            ("/abs/\n\"'\\\t", ["y"], None, 1.25),
            pytest.param("/abs/é\n\"'\\\t\x01\x7f\N{GRINNING FACE}", ["y"], None, 1.25, marks=unicode_text),
        ],
    )
    def test_writes_the_same_bytes(
        self,
        tf: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        absolute: bool,
        path: str,
        others: list[str] | None,
        times: list[float] | None,
        preserved: float | None,
    ) -> None:
        """`update_checkpoint_state` gives TensorFlow's file for the same arguments."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "d").mkdir()
        directory = str(tmp_path / "d") if absolute else "d"
        path = path.replace("{}", directory)
        written = []
        for update in (tf.compat.v1.train.update_checkpoint_state, update_checkpoint_state):
            paths = others and [other.replace("{}", directory) for other in others]
            update(directory, path, paths, None, times, preserved)
            written.append((tmp_path / "d/checkpoint").read_bytes())
        assert written[0] == written[1]

    @given(state=states)
    def test_tensorflow_reads_what_is_written(
        self, tf: Any, tmp_path_factory: pytest.TempPathFactory, state: CheckpointState
    ) -> None:
        """Any state that milepost writes."""
        directory = write(tmp_path_factory.mktemp("state"), format_state(state))
        theirs = tf.train.get_checkpoint_state(str(directory))
        ours = get_checkpoint_state(directory)
        assert ours is not None
        assert ours.model_checkpoint_path == theirs.model_checkpoint_path
        assert ours.all_model_checkpoint_paths == theirs.all_model_checkpoint_paths
        assert ours.all_model_checkpoint_timestamps == theirs.all_model_checkpoint_timestamps
        assert ours.last_preserved_timestamp == theirs.last_preserved_timestamp

    @pytest.mark.parametrize("directory", ["d", "d/", ".", "", "{}/d"])
    def test_reads_the_same_paths(
        self, tf: Any, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Relative paths are joined in the same way."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "d").mkdir()
        directory = directory.format(tmp_path)
        write(Path(directory), b'model_checkpoint_path: "a/../ckpt-1" all_model_checkpoint_paths: "/x"')
        theirs = tf.train.get_checkpoint_state(directory)
        ours = get_checkpoint_state(directory)
        assert ours is not None
        assert (ours.model_checkpoint_path, *ours.all_model_checkpoint_paths) == (
            theirs.model_checkpoint_path,
            *theirs.all_model_checkpoint_paths,
        )

    def test_junk_is_no_state_for_tensorflow_and_an_error_here(self, tf: Any, tmp_path: Path) -> None:
        """The difference is deliberate: without a word, training would start anew."""
        write(tmp_path, b"junk")
        assert tf.train.get_checkpoint_state(str(tmp_path)) is None
        with pytest.raises(StateFileError):
            get_checkpoint_state(tmp_path)

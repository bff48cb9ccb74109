"""The checkpoints of a directory: the newest good one, waiting for new ones, removing."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost import CheckpointOptions, checkpoints_iterator, get_checkpoint_state, latest_checkpoint
from milepost.errors import ArgumentError, MilepostWarning, SkippedCheckpointWarning, StateFileError, StorageError
from milepost.series import directory as directory_module
from milepost.series.state_file import CheckpointState, record_state
from milepost.storage import LocalStorage, MemoryStorage, ReadableFile
from milepost.tensorflow1 import checkpoint_exists, get_checkpoint_mtimes, remove_checkpoint, update_checkpoint_state
from tests.bundles import commit_bundle
from tests.series.test_commit import names, values

STORAGE = LocalStorage()


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def series(directory: Path | str, count: int, name: str = "ckpt") -> list[str]:
    """Saves some checkpoints, which the state file lists."""
    paths = [os.path.join(directory, f"{name}-{number}") for number in range(1, count + 1)]
    for number, path in enumerate(paths):
        commit_bundle(STORAGE, path, values(number))
    record_state(directory, CheckpointState(paths[-1], tuple(paths)))
    return paths


def flip(path: str, offset: int = 7) -> None:
    data = bytearray(Path(path).read_bytes())
    data[offset] ^= 0x10
    Path(path).write_bytes(data)


class Counting(LocalStorage):
    """Counts the data files that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def open(self, path: str) -> Any:
        file = super().open(path)
        storage = self

        class Counted:
            path, size, close = file.path, file.size, file.close

            def read(self, offset: int, length: int) -> bytes:
                storage.read.append(file.path)
                return file.read(offset, length)

            def read_into(self, offset: int, buffer: Any) -> None:
                storage.read.append(file.path)
                file.read_into(offset, buffer)

        opened: ReadableFile = Counted()
        return opened

    def data_read(self) -> list[str]:
        """Data files that were read since the last call."""
        found = sorted({os.path.basename(path) for path in self.read if ".data-" in path})
        self.read.clear()
        return found


class TestLatest:
    @pytest.mark.parametrize("kind", [str, Path])
    @pytest.mark.parametrize("directory", ["{}", "d", "d/", ".", ""])
    def test_the_path_is_tensorflows(
        self, tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str, kind: type
    ) -> None:
        """Joined to the directory as it was passed."""
        monkeypatch.chdir(tmp_path)
        series(directory.format(tmp_path), 2)
        passed = kind(directory.format(tmp_path))
        assert latest_checkpoint(passed) == tf.train.latest_checkpoint(passed)

    def test_without_a_state_file_there_is_none(self, tmp_path: Path) -> None:
        """Files that no state file names are not looked for."""
        commit_bundle(STORAGE, f"{tmp_path}/ckpt-1", values(1))
        assert latest_checkpoint(tmp_path) is None
        assert latest_checkpoint(tmp_path / "missing") is None

    def test_a_state_file_that_is_not_understood_is_an_error(self, tmp_path: Path) -> None:
        """TensorFlow would say that there is no checkpoint."""
        series(tmp_path, 1)
        (tmp_path / "checkpoint").write_bytes(b"\0\0")
        with pytest.raises(StateFileError):
            latest_checkpoint(tmp_path)

    def test_names_are_not_patterns(self, tmp_path: Path) -> None:
        """TensorFlow can save a name with brackets but never find it again."""
        paths = series(tmp_path / "a[1]*", 1, name="ck?pt[2]")
        assert latest_checkpoint(tmp_path / "a[1]*") == paths[-1]

    @pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
    def test_a_damaged_one_is_passed_over(self, tmp_path: Path, ending: str) -> None:
        """For the next older one, and the warning says which and why."""
        paths = series(tmp_path, 3)
        flip(f"{paths[2]}.{ending}")
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-3") as caught:
            assert latest_checkpoint(tmp_path) == paths[1]
        assert len(caught) == 1
        assert f"ckpt-3.{ending}" in str(caught[0].message)
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("verify", ["checksums", "files", "none"])
    def test_a_missing_one_is_passed_over(self, tmp_path: Path, verify: Any) -> None:
        """However little is verified."""
        paths = series(tmp_path, 2)
        os.remove(f"{paths[1]}.index")
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-2"):
            assert latest_checkpoint(tmp_path, verify=verify) == paths[0]

    def test_how_much_is_verified(self, tmp_path: Path) -> None:
        """Damaged bytes show in checksums only, missing data in the sizes of files too."""
        paths = series(tmp_path, 2)
        flip(f"{paths[1]}.data-00000-of-00001")
        assert latest_checkpoint(tmp_path, verify="files") == paths[1]
        os.truncate(f"{paths[1]}.data-00000-of-00001", 100)
        assert latest_checkpoint(tmp_path, verify="none") == paths[1]
        with pytest.warns(SkippedCheckpointWarning):
            assert latest_checkpoint(tmp_path, verify="files") == paths[0]
        with pytest.raises(ArgumentError, match="verify") as caught:
            latest_checkpoint(tmp_path, verify="some")  # type: ignore[arg-type]
        assert isinstance(caught.value, ValueError)
        assert caught.value.remedy

    def test_none_if_none_is_good(self, tmp_path: Path) -> None:
        """With a warning for each."""
        for path in series(tmp_path, 3):
            flip(f"{path}.index")
        with pytest.warns(SkippedCheckpointWarning) as caught:
            assert latest_checkpoint(tmp_path) is None
        assert len(caught) == 3

    def test_the_latest_need_not_be_on_the_list(self, tmp_path: Path) -> None:
        """Nor the newest of it: the state file's word counts."""
        paths = series(tmp_path, 3)
        record_state(tmp_path, CheckpointState(paths[0], tuple(paths[1:])))
        assert latest_checkpoint(tmp_path) == paths[0]

    def test_files_are_read_once(self, tmp_path: Path) -> None:
        """Until they change; what is older than the newest good one is not read at all."""
        storage = Counting()
        paths = series(tmp_path, 2)
        assert latest_checkpoint(tmp_path, options=CheckpointOptions(storage=storage)) == paths[1]
        assert storage.data_read() == ["ckpt-2.data-00000-of-00001"]
        assert latest_checkpoint(tmp_path, options=CheckpointOptions(storage=storage)) == paths[1]
        assert storage.data_read() == []
        flip(f"{paths[1]}.data-00000-of-00001")
        for read in (["ckpt-1.data-00000-of-00001", "ckpt-2.data-00000-of-00001"], []):
            with pytest.warns(SkippedCheckpointWarning):
                assert latest_checkpoint(tmp_path, options=CheckpointOptions(storage=storage)) == paths[0]
            assert storage.data_read() == read

    def test_a_reused_relative_path_is_another_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was found out in one working directory says nothing about another."""
        for name in ("a", "b"):
            series(tmp_path / name, 1)
        os.remove(tmp_path / "b/ckpt-1.data-00000-of-00001")
        monkeypatch.chdir(tmp_path / "a")
        assert latest_checkpoint("") == "ckpt-1"
        monkeypatch.chdir(tmp_path / "b")
        with pytest.warns(SkippedCheckpointWarning):
            assert latest_checkpoint("") is None

    def test_memory_of_what_was_read_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process that waits for checkpoints for months does not grow."""
        monkeypatch.setattr(directory_module, "_MOST_REMEMBERED", 2)
        storage = Counting()
        for number in (1, 2, 3):
            series(tmp_path, number)
            assert latest_checkpoint(tmp_path, options=CheckpointOptions(storage=storage)) is not None
        assert len(directory_module._FINDINGS._found[storage]) == 2

    @pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
    def test_what_cannot_be_read_is_damaged_only_if_the_medium_says_so(self, tmp_path: Path, code: int) -> None:
        """A missing permission is an error of its own; an older checkpoint would be no answer to it."""

        class Refusing(LocalStorage):
            def open(self, path: str) -> Any:
                if path.endswith("ckpt-2.index"):
                    raise StorageError("refused", errno=code, file=path)
                return super().open(path)

        paths = series(tmp_path, 2)
        if code == errno.EIO:
            with pytest.warns(SkippedCheckpointWarning, match="refused"):
                assert (
                    latest_checkpoint(tmp_path, options=CheckpointOptions(storage=Refusing()), verify="files")
                    == paths[0]
                )
        else:
            with pytest.raises(StorageError):
                latest_checkpoint(tmp_path, options=CheckpointOptions(storage=Refusing()))

    def test_any_storage(self) -> None:
        """State and checkpoints live in the storage that is passed."""
        storage = MemoryStorage()
        commit_bundle(storage, "run/ckpt-1", values(1))
        update_checkpoint_state("run", "run/ckpt-1", options=CheckpointOptions(storage=storage))
        assert latest_checkpoint("run", options=CheckpointOptions(storage=storage)) == "run/ckpt-1"
        assert checkpoint_exists("run/ckpt-1", options=CheckpointOptions(storage=storage))
        assert get_checkpoint_mtimes(["run/ckpt-1"], options=CheckpointOptions(storage=storage))[0] == pytest.approx(
            time.time(), abs=10
        )
        remove_checkpoint("run/ckpt-1", options=CheckpointOptions(storage=storage))
        assert storage.list("run") == []

    @pytest.mark.parametrize("verify", ["checksums", "files", "none"])
    def test_a_writer_that_is_faster_than_the_reader_does_not_hide_its_checkpoints(
        self, tmp_path: Path, verify: Any
    ) -> None:
        """Each checkpoint that the reader knows of is gone when it is looked at, a hundred times."""
        saved = 0

        def read_state() -> CheckpointState:
            nonlocal saved
            saved += 1
            if saved == 200:  # the state is read once or twice for each attempt
                commit_bundle(STORAGE, f"{tmp_path}/x-200", values(200))
            return CheckpointState(f"{tmp_path}/x-{min(saved, 200)}", (f"{tmp_path}/x-{min(saved, 200)}",))

        assert directory_module.newest_good(STORAGE, read_state, verify) == f"{tmp_path}/x-200"


class TestIterator:
    def test_yields_each_new_latest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """And skips those in between that were never seen as the latest."""
        monkeypatch.setattr(directory_module, "_POLL_SECONDS", 0.01)
        found = checkpoints_iterator(tmp_path, timeout=10)
        (first,) = series(tmp_path, 1)
        assert next(found) == first
        paths = series(tmp_path, 3)
        assert next(found) == paths[2]
        thread = threading.Timer(0.1, lambda: series(tmp_path, 4))
        thread.start()
        assert next(found) == f"{tmp_path}/ckpt-4"
        thread.join()

    def test_never_goes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A damaged newer checkpoint is reported once, and what was yielded before is not yielded again."""
        monkeypatch.setattr(directory_module, "_POLL_SECONDS", 0.01)
        found = checkpoints_iterator(tmp_path, timeout=0.1)
        paths = series(tmp_path, 2)
        assert next(found) == paths[1]
        paths = series(tmp_path, 3)
        flip(f"{paths[1]}.index")
        flip(f"{paths[2]}.index")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert list(found) == []
        assert ["ckpt-3" in str(warning.message) for warning in caught] == [True]

    @pytest.mark.parametrize(("timeout", "seconds"), [(0, 0.0), (0.3, 0.3)])
    def test_ends_with_the_first_timeout(self, tmp_path: Path, timeout: float, seconds: float) -> None:
        """If nobody is asked."""
        paths = series(tmp_path, 1)
        started = time.monotonic()
        assert list(checkpoints_iterator(tmp_path, timeout=timeout)) == paths
        assert time.monotonic() - started >= seconds

    def test_a_checkpoint_that_took_longer_than_the_interval_is_waited_for_no_longer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paths = series(tmp_path, 1)
        found = checkpoints_iterator(tmp_path, min_interval_secs=0.01, timeout=0)
        assert next(found) == paths[0]
        time.sleep(0.02)
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        assert list(found) == []
        assert sum(slept) == 0

    def test_asks_at_timeouts_and_after_each_checkpoint_as_tensorflow(self, tf: Any, tmp_path: Path) -> None:
        """The function decides when to end."""
        paths = series(tmp_path, 1)
        asked = []
        for iterator in (tf.train.checkpoints_iterator, checkpoints_iterator):
            answers = itertools.count()

            def is_done(answers: Iterator[int] = answers) -> bool:
                return next(answers) == 3

            found = list(iterator(str(tmp_path), timeout=0, timeout_fn=is_done))
            asked.append((found, next(answers)))
        assert asked == [(paths, 4), (paths, 4)]

    def test_keeps_the_interval(self, tmp_path: Path) -> None:
        """Between two checkpoints at least so much time passes."""
        series(tmp_path, 1)
        started = time.monotonic()
        assert len(list(checkpoints_iterator(tmp_path, min_interval_secs=0.2, timeout=0))) == 1
        assert time.monotonic() - started >= 0.2


class TestFiles:
    def test_exists_as_for_tensorflow(self, tf: Any, tmp_path: Path) -> None:
        """An index, a file of the very path, or a directory."""
        (path,) = series(tmp_path, 1)
        (tmp_path / "v1-00000-of-00001").write_bytes(b"")
        prefixes = [path, f"{path}.index", f"{path}0", str(tmp_path), f"{tmp_path}/v1-?????-of-00001"]
        assert [checkpoint_exists(Path(prefix)) for prefix in prefixes] == [True, True, False, True, True]
        assert [tf.compat.v1.train.checkpoint_exists(prefix) for prefix in prefixes] == [True, True, False, True, True]

    def test_times_as_for_tensorflow(self, tf: Any, tmp_path: Path) -> None:
        """Whole seconds of the indexes; what is missing is left out."""
        paths = [*series(tmp_path, 2), f"{tmp_path}/missing"]
        os.utime(f"{paths[0]}.index", (12345.75, 12345.75))
        times = get_checkpoint_mtimes(map(Path, paths))
        assert times == tf.compat.v1.train.get_checkpoint_mtimes(paths)
        assert times[0] == 12345.0

    def test_remove_as_tensorflow(self, tf: Any, tmp_path: Path) -> None:
        """Index, data of any number of shards, and the graph; nothing else."""
        left: list[list[str]] = []
        for remove in (tf.compat.v1.train.remove_checkpoint, remove_checkpoint):
            directory = tmp_path / str(len(left))
            (path, *_) = series(directory, 2)
            for ending in (".meta", ".data-00001-of-00002", ".data-00001-of-2", ".other", "0.index"):
                Path(path + ending).write_bytes(b"")
            remove(path)
            left.append(names(directory))
        assert left[0] == left[1]

    @pytest.mark.parametrize("version", [1, 2])
    def test_what_is_not_there_is_said_to_be_missing(self, tmp_path: Path, version: int) -> None:
        """Even if there is no directory."""
        with pytest.warns(MilepostWarning, match="missing/x"):
            assert not remove_checkpoint(tmp_path / "missing/x", version)

    def test_remove_an_old_checkpoint(self, tmp_path: Path) -> None:
        """A V1 checkpoint is a single file."""
        for name in ("x", "x.meta", "x.index"):
            (tmp_path / name).write_bytes(b"")
        assert remove_checkpoint(tmp_path / "x", checkpoint_format_version=1)
        assert names(tmp_path) == ["x.index"]

    def test_remove_an_old_checkpoint_in_shards(self, tmp_path: Path) -> None:
        """Under the name that TensorFlow 1 gives all of them."""
        for name in ("x-00000-of-00002", "x-00001-of-00002", "x.meta", "y-00000-of-00001"):
            (tmp_path / name).write_bytes(b"")
        assert remove_checkpoint(tmp_path / "x-?????-of-00002", checkpoint_format_version=1)
        assert names(tmp_path) == ["y-00000-of-00001"]

    def test_a_removed_checkpoint_is_on_no_list(self, tmp_path: Path) -> None:
        """If it was the latest, the newest of the others is; times stay with their checkpoints."""
        paths = series(tmp_path, 3)
        record_state(tmp_path, CheckpointState(paths[2], tuple(paths), (1.0, 2.0, 3.0), 0.5))
        assert remove_checkpoint(paths[2])
        state = get_checkpoint_state(tmp_path)
        assert state is not None
        assert state.model_checkpoint_path == paths[1]
        assert list(state.all_model_checkpoint_paths) == paths[:2]
        assert list(state.all_model_checkpoint_timestamps) == [1.0, 2.0]
        assert remove_checkpoint(paths[0])
        assert latest_checkpoint(tmp_path) == paths[1]
        assert remove_checkpoint(paths[1])
        assert get_checkpoint_state(tmp_path) is None

    def test_names_are_not_patterns(self, tmp_path: Path) -> None:
        """Removing `x*` leaves `xy` alone."""
        for name in ("x*", "xy", "[ab]", "a"):
            commit_bundle(STORAGE, f"{tmp_path}/{name}", values(1))
        for name in ("x*", "[ab]"):
            remove_checkpoint(tmp_path / name)
        assert names(tmp_path) == ["a.data-00000-of-00001", "a.index", "xy.data-00000-of-00001", "xy.index"]

    def test_the_index_is_gone_for_good_before_the_data(self, tmp_path: Path) -> None:
        """At no time is there an index without its data."""
        calls = []

        class Recording(LocalStorage):
            def remove(self, path: str) -> None:
                calls.append(os.path.basename(path))
                super().remove(path)

            def sync_directory(self, path: str) -> None:
                calls.append("sync")
                super().sync_directory(path)

        (path,) = series(tmp_path, 1)
        remove_checkpoint(path, options=CheckpointOptions(storage=Recording()))
        assert calls.pop(0) == "sync"  # of the note by which the next manager would complete the removal
        assert calls[:2] == ["checkpoint", "sync"]
        assert "-removal-" in calls.pop(-2)
        assert calls[2:] == ["ckpt-1.index", "sync", "ckpt-1.data-00000-of-00001", "sync", "ckpt-1.meta"]

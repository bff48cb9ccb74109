"""Leftovers: recognised by their names, removed when their save is dead, and nothing else is touched."""

from __future__ import annotations

import errno
import random
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import CorruptCheckpointError, StorageError
from milepost.series.announcement import announced, digest_of
from milepost.series.leftovers import sweep_leftovers, visible_shards
from milepost.series.notes import Temporary, new_token, temporaries
from milepost.series.series import list_announced
from milepost.storage import LocalStorage, ReadableFile
from milepost.testing import FaultyStorage
from tests import programs
from tests.bundles import commit_bundle
from tests.series.test_commit import content, names, values

STORAGE = LocalStorage()
TOKEN = "0123456789abcdef"


def touch(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).write_bytes(b"x")


class TestNames:
    @given(st.text(min_size=1).filter(lambda name: "\0" not in name), st.none() | st.integers(1, 10**6))
    def test_parsing_undoes_naming(self, final: str, shards: int | None) -> None:
        """Any path, claim or not."""
        file = Temporary(final if shards is None else final + ".index", new_token(), shards)
        assert Temporary.parse(file.path) == file

    @pytest.mark.parametrize(
        "name",
        [
            "x.index.milepost-0123456789abcdef-of-00000.tmp",
            "x.index.milepost-0123456789abcdef-of-000001.tmp",
            "x.milepost-0123456789abcdef-of-00001.tmp",
            "x.index.milepost-0123456789ABCDEF.tmp",
            "x.index.milepost-0123456789abcde.tmp",
            "x.index.milepost-0123456789abcdef.tmp~",
            ".milepost-0123456789abcdef.tmp",
            "x.index",
            "x.index.tmp",
        ],
    )
    def test_other_names_are_foreign(self, name: str) -> None:
        """What milepost would not write is not milepost's."""
        assert Temporary.parse(name) is None


class TestSweep:
    def test_temporary_files_of_a_dead_save_go(self, tmp_path: Path) -> None:
        """Whatever their save had written."""
        touch(tmp_path, f"x.data-00000-of-00001.milepost-{TOKEN}.tmp", f"checkpoint.milepost-{TOKEN}.tmp")
        touch(tmp_path, f"x.index.milepost-{TOKEN}-of-00001.tmp")
        assert len(sweep_leftovers(STORAGE, str(tmp_path))) == 3
        assert names(tmp_path) == []

    def test_data_that_was_renamed_before_its_index_goes(self, tmp_path: Path) -> None:
        """The claim names it, and no index does."""
        touch(tmp_path, "x.data-00000-of-00002", "x.data-00001-of-00002", "x.data-00000-of-00001")
        touch(tmp_path, f"x.index.milepost-{TOKEN}-of-00002.tmp")
        removed = sweep_leftovers(STORAGE, str(tmp_path))
        assert removed[-1].endswith(".tmp")
        assert names(tmp_path) == ["x.data-00000-of-00001"]

    def test_data_of_the_visible_index_stays(self, tmp_path: Path) -> None:
        """A claim is void when the index has the claimed number of shards."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        touch(tmp_path, f"x.index.milepost-{TOKEN}-of-00001.tmp")
        sweep_leftovers(STORAGE, str(tmp_path))
        assert names(tmp_path) == ["x.data-00000-of-00001", "x.index"]

    def test_the_next_save_of_the_same_checkpoint_removes_what_a_dead_one_claimed(self, tmp_path: Path) -> None:
        """Also if it needs other names itself."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        touch(tmp_path, "x.data-00000-of-00003", "x.data-00001-of-00003", "x.data-00002-of-00003")
        touch(tmp_path, f"x.index.milepost-{TOKEN}-of-00003.tmp")
        commit_bundle(STORAGE, f"{tmp_path}/x", values(2))
        assert len([name for name in names(tmp_path) if "-of-00003" in name]) == 0

    def test_replaced_data_goes(self, tmp_path: Path) -> None:
        """A save that died between its commit and the removal of the old data left its claim to it."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1, shards=2), shards=2)
        touch(tmp_path, "x.data-00000-of-00001", f"x.index.milepost-{TOKEN}-of-00001.tmp")
        sweep_leftovers(STORAGE, str(tmp_path))
        assert names(tmp_path) == ["x.data-00000-of-00002", "x.data-00001-of-00002", "x.index"]

    def test_with_an_index_that_cannot_be_read_claimed_data_stays(self, tmp_path: Path) -> None:
        """It may be what the index means; so may the claim be needed later."""
        files = ["x.data-00000-of-00001", "x.index", f"x.index.milepost-{TOKEN}-of-00001.tmp"]
        touch(tmp_path, *files)
        with pytest.raises(CorruptCheckpointError):
            visible_shards(STORAGE, f"{tmp_path}/x")
        assert sweep_leftovers(STORAGE, str(tmp_path)) == []
        assert names(tmp_path) == files

    @pytest.mark.parametrize(
        ("code", "kind"),
        [(errno.EIO, CorruptCheckpointError), (errno.EACCES, StorageError), (errno.EMFILE, StorageError)],
    )
    def test_only_damage_counts_as_damage(self, code: int, kind: type[Exception]) -> None:
        """An index that may not be read is not damaged. Its data stays all the same."""
        storage = FaultyStorage()
        commit_bundle(storage, "run/x", values(1))
        storage.create(f"run/x.index.milepost-{TOKEN}-of-00001.tmp").close()
        before = storage.list("run")
        opened = storage.open

        def refusing(path: str) -> ReadableFile:
            if path == "run/x.index":
                raise StorageError("cannot open for reading", errno=code, file=path)
            return opened(path)

        storage.open = refusing  # type: ignore[method-assign,assignment]
        with pytest.raises(kind) as caught:
            visible_shards(storage, "run/x")
        assert type(caught.value).__name__ == kind.__name__
        assert sweep_leftovers(storage, "run") == []
        assert storage.list("run") == before

    def test_a_checkpoint_that_cannot_be_read_just_now_is_listed_later(self) -> None:
        """A killed process had saved it. Too many open files in another run do not make it forgotten."""
        storage = FaultyStorage()
        commit_bundle(storage, "run/ckpt-1", values(1))
        index = storage.open("run/ckpt-1.index")
        digest = digest_of(index.read(0, index.size))
        storage.create(f"run/ckpt-1.milepost-{TOKEN}-index-{digest}.tmp").close()
        opened = storage.open

        def refusing(path: str) -> ReadableFile:
            raise StorageError("cannot open for reading", errno=errno.EMFILE, file=path)

        storage.open = refusing  # type: ignore[method-assign,assignment]
        sweep_leftovers(storage, "run")
        list_announced(storage, "run")
        assert announced(storage, "run") == []
        storage.open = opened  # type: ignore[method-assign]
        assert announced(storage, "run") == ["run/ckpt-1"]

    def test_foreign_files_stay(self, tmp_path: Path) -> None:
        """TensorFlow's unfinished saves, copies under way, editors' files, directories."""
        files = [
            "checkpoint.tmp0123456789abcdef0123456789abcdef",
            "x.data-00000-of-00001",
            "x.data-00000-of-00001.tempstate123",
            "y.index",
            "z.tmp",
            "notes.milepost-draft.tmp",
        ]
        touch(tmp_path, *files)
        (tmp_path / "x_temp").mkdir()
        (tmp_path / "x_temp/part-00000-of-00001.index").write_bytes(b"x")
        assert sweep_leftovers(STORAGE, str(tmp_path)) == []
        assert names(tmp_path) == sorted([*files, "x_temp"])
        assert sweep_leftovers(STORAGE, f"{tmp_path}/missing") == []

    def test_a_save_in_progress_is_left_alone(self, tmp_path: Path) -> None:
        """At whatever point it is swept, also with data that a dead save has claimed."""
        swept = []

        class Sweeping(LocalStorage):
            def rename(self, source: str, target: str) -> None:
                swept.extend(sweep_leftovers(STORAGE, str(tmp_path)))
                super().rename(source, target)
                swept.extend(sweep_leftovers(STORAGE, str(tmp_path)))

        for number in range(3):
            commit_bundle(Sweeping(), f"{tmp_path}/x", values(number))
            assert content(tmp_path / "x") == number
        assert swept == []

    def test_only_one_checkpoint_can_be_swept(self, tmp_path: Path) -> None:
        """As a save does before it takes the names."""
        touch(tmp_path, f"x.index.milepost-{TOKEN}-of-00001.tmp", f"y.index.milepost-{TOKEN[::-1]}-of-00001.tmp")
        sweep_leftovers(STORAGE, str(tmp_path), prefix=f"{tmp_path}/x")
        assert [file.final for file in temporaries(STORAGE, str(tmp_path))] == [f"{tmp_path}/y.index"]

    def test_a_save_takes_the_names_that_a_dead_one_claimed(self, tmp_path: Path) -> None:
        """Leftovers do not change how a new checkpoint's files are named."""
        touch(tmp_path, "x.data-00000-of-00001", f"x.index.milepost-{TOKEN}-of-00001.tmp")
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        assert names(tmp_path) == ["x.data-00000-of-00001", "x.index"]
        assert content(tmp_path / "x") == 1

    def test_with_a_damaged_index_a_save_avoids_the_names_that_a_dead_one_claimed(self, tmp_path: Path) -> None:
        """Its claim cannot be settled before the index is replaced; then it is."""
        touch(tmp_path, "x.data-00000-of-00001", "x.index", f"x.index.milepost-{TOKEN}-of-00001.tmp")
        touch(tmp_path, "x.data-00000-of-00002", f"x.index.milepost-{TOKEN[::-1]}-of-00002.tmp")
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        sweep_leftovers(STORAGE, str(tmp_path))
        assert names(tmp_path) == [*(f"x.data-0000{shard}-of-00003" for shard in range(3)), "x.index"]
        assert content(tmp_path / "x") == 1


class TestKill:
    CODE = """
import sys
import numpy as np
from milepost.series.commit import commit_file
from tests.bundles import commit_bundle
from milepost.storage import LocalStorage
number, storage = int(sys.argv[2]), LocalStorage()
while True:
    def fill(writer):
        writer.add("v0", np.full(1000, number, np.int32))
    commit_bundle(storage, sys.argv[1] + "/x", fill)
    commit_file(storage, sys.argv[1] + "/state", b"%d" % number)
    print(number, flush=True)
    number += 1
"""

    def test_whatever_was_acknowledged_is_there(self, tmp_path: Path) -> None:
        """Killed at random, a process leaves its last save, or the one that it was about to finish."""
        seed = random.randrange(2**32)
        chance = random.Random(seed)
        acknowledged = 0
        for _ in range(12):
            command: list[str | Path] = ["-c", self.CODE, tmp_path, str(acknowledged + 1)]
            with (
                tempfile.TemporaryFile("w") as errors,
                programs.start(command, imports=["numpy"], stdout=subprocess.PIPE, stderr=errors) as process,
            ):
                assert process.stdout
                acknowledged = int(process.stdout.readline())
                try:
                    process.wait(chance.uniform(0, 0.05))
                except subprocess.TimeoutExpired:
                    process.kill()
                acknowledged = int(("\n".join([str(acknowledged), process.stdout.read()])).split()[-1])
            found = content(tmp_path / "x")
            assert found in (acknowledged, acknowledged + 1), f"seed {seed}"
            assert int((tmp_path / "state").read_bytes()) in (acknowledged, acknowledged + 1), f"seed {seed}"
            sweep_leftovers(STORAGE, str(tmp_path))
            shards = visible_shards(STORAGE, f"{tmp_path}/x") or 0
            data = [f"x.data-{shard:05}-of-{shards:05}" for shard in range(shards)]
            assert names(tmp_path) == ["state", *data, "x.index"], f"seed {seed}"
            acknowledged = found

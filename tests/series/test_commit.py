"""The commit protocol on real files: names, bytes, failures, concurrent saves."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.bundle import BundleWriter
from milepost.errors import StorageError
from milepost.series import commit as commit_module
from milepost.series.commit import BundleCommit, commit_file
from milepost.series.leftovers import visible_shards
from milepost.series.notes import Temporary, new_token
from milepost.storage import LocalStorage, MemoryStorage, Storage
from tests import interrupts
from tests.bundles import commit_bundle

STORAGE = LocalStorage()


def values(number: int, shards: int = 1) -> Callable[[BundleWriter], None]:
    def fill(writer: BundleWriter) -> None:
        for shard in range(shards):
            writer.add(f"v{shard}", np.full(1000, number + shard, np.int32), shard=shard)

    return fill


def content(prefix: object) -> int:
    """The number that `values` was called with, as TensorFlow's layout has it: all checksums are of that number."""
    data = Path(f"{prefix}.data-00000-of-{visible_shards(STORAGE, str(prefix)):05}").read_bytes()
    array = np.frombuffer(data, np.int32)
    assert (array == array[0]).all()
    return int(array[0])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class TestFreshPrefix:
    def test_the_files_are_named_as_tensorflows(self, tmp_path: Path) -> None:
        """Index and data, and nothing else, in directories that are made on the way."""
        commit_bundle(STORAGE, f"{tmp_path}/a/b/ckpt-1", values(7))
        assert names(tmp_path / "a/b") == ["ckpt-1.data-00000-of-00001", "ckpt-1.index"]
        assert content(tmp_path / "a/b/ckpt-1") == 7

    def test_several_shards(self, tmp_path: Path) -> None:
        """As many data files as asked for."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(7, shards=3), shards=3)
        assert names(tmp_path) == [*(f"x.data-0000{shard}-of-00003" for shard in range(3)), "x.index"]

    def test_the_bytes_are_tensorflows(self, tmp_path: Path) -> None:
        """With dense alignment both files equal those of SaveV2."""
        tf = pytest.importorskip("tensorflow")
        tensor = np.arange(5, dtype=np.float32)
        tf.raw_ops.SaveV2(prefix=f"{tmp_path}/tf", tensor_names=["x"], shape_and_slices=[""], tensors=[tensor])
        commit_bundle(STORAGE, f"{tmp_path}/mp", lambda writer: writer.add("x", tensor))
        for ending in ("index", "data-00000-of-00001"):
            assert (tmp_path / f"mp.{ending}").read_bytes() == (tmp_path / f"tf.{ending}").read_bytes()

    def test_without_a_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A bare name is a file of the working directory."""
        monkeypatch.chdir(tmp_path)
        commit_bundle(STORAGE, "bare", values(7))
        commit_file(STORAGE, "state", b"text")
        assert names(tmp_path) == ["bare.data-00000-of-00001", "bare.index", "state"]

    def test_names_are_not_patterns(self, tmp_path: Path) -> None:
        """Brackets, stars, spaces and line ends are parts of names like others."""
        for name in ("a[1]", "b*", "c d\n", "e?.index"):
            commit_bundle(STORAGE, f"{tmp_path}/{name}", values(3))
            commit_bundle(STORAGE, f"{tmp_path}/{name}", values(4))
            assert content(tmp_path / name) == 4
        assert len(names(tmp_path)) == 4 * 3  # the second save has an empty shard


class TestReplacing:
    def test_data_never_takes_the_names_of_visible_data(self, tmp_path: Path) -> None:
        """An empty shard is added, and is not needed any more the next time."""
        prefix = tmp_path / "x"
        found = []
        for number in range(4):
            commit_bundle(STORAGE, str(prefix), values(number))
            assert content(prefix) == number
            found.append(names(tmp_path))
        assert found[0] == found[2] == ["x.data-00000-of-00001", "x.index"]
        assert found[1] == found[3] == ["x.data-00000-of-00002", "x.data-00001-of-00002", "x.index"]

    def test_fewer_shards_leave_no_data_behind(self, tmp_path: Path) -> None:
        """TensorFlow would leave what the new index does not name."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1, shards=3), shards=3)
        commit_bundle(STORAGE, f"{tmp_path}/x", values(2))
        assert names(tmp_path) == ["x.data-00000-of-00001", "x.index"]

    def test_who_has_the_old_one_open_can_read_on(self, tmp_path: Path) -> None:
        """Values that wait for their object are not pulled away."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        file = STORAGE.open(f"{tmp_path}/x.data-00000-of-00001")
        commit_bundle(STORAGE, f"{tmp_path}/x", values(2))
        assert np.frombuffer(file.read(0, 4), np.int32) == 1
        file.close()

    @pytest.mark.parametrize("damaged", [b"", b"junk" * 100])
    def test_an_index_that_cannot_be_read_is_replaced_like_another(self, tmp_path: Path, damaged: bytes) -> None:
        """Any of the data files may be the one that it means, so none is overwritten, and all go in the end."""
        (tmp_path / "x.index").write_bytes(damaged)
        for name in ("x.data-00000-of-00001", "x.data-00001-of-00002", "xy.data-00000-of-00001", "x.meta"):
            (tmp_path / name).write_bytes(b"old")
        commit_bundle(STORAGE, f"{tmp_path}/x", values(2))
        kept = ["x.index", "x.meta", "xy.data-00000-of-00001"]
        assert names(tmp_path) == sorted([f"x.data-0000{shard}-of-00003" for shard in range(3)] + kept)

    def test_an_index_without_its_data_keeps_its_names(self, tmp_path: Path) -> None:
        """New data under them would make the old index visible as a checkpoint that never was."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        (tmp_path / "x.data-00000-of-00001").unlink()
        commit_bundle(STORAGE, f"{tmp_path}/x", values(2))
        assert names(tmp_path) == ["x.data-00000-of-00002", "x.data-00001-of-00002", "x.index"]

    def test_tensorflow_reads_the_replacement(self, tmp_path: Path) -> None:
        """An empty extra shard is nothing special to it."""
        tf = pytest.importorskip("tensorflow")
        for number in (1, 2):
            commit_bundle(STORAGE, f"{tmp_path}/x", values(number))
        assert (tf.train.load_variable(f"{tmp_path}/x", "v0") == 2).all()


class _Failing(LocalStorage):
    """Fails one kind of operation from some point on."""

    def __init__(self, operation: str, code: int, path: str = "") -> None:
        super().__init__()
        self.operation, self.code, self.path = operation, code, path

    def _check(self, operation: str, path: str) -> None:
        if operation == self.operation and re.search(self.path, path):
            raise StorageError("refused", errno=self.code, file=path)

    def create(self, path: str) -> Any:
        self._check("create", path)
        return super().create(path)

    def rename(self, source: str, target: str) -> None:
        self._check("rename", target)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._check("remove", path)
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._check("sync_directory", path)
        super().sync_directory(path)


class TestFailures:
    @pytest.mark.parametrize("replaced", [False, True])
    @pytest.mark.parametrize(
        ("operation", "path"),
        [("create", "index"), ("create", "data"), ("rename", "data"), ("rename", "index"), ("sync_directory", "")],
    )
    def test_what_was_there_stays_and_nothing_else_does(
        self, tmp_path: Path, operation: str, path: str, replaced: bool
    ) -> None:
        """A failed save tells why and cleans up."""
        if replaced:
            commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        before = names(tmp_path)
        with pytest.raises(StorageError) as caught:
            commit_bundle(_Failing(operation, errno.ENOSPC, path), f"{tmp_path}/x", values(2))
        assert caught.value.errno == errno.ENOSPC
        assert names(tmp_path) == before
        if replaced:
            assert content(tmp_path / "x") == 1

    def test_an_error_while_filling_leaves_nothing(self, tmp_path: Path) -> None:
        """Whatever the caller's function raises comes out as it is."""

        def fill(writer: BundleWriter) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            commit_bundle(STORAGE, f"{tmp_path}/x", fill)
        assert names(tmp_path) == []

    def test_data_that_cannot_be_removed_does_not_fail_the_save(self, tmp_path: Path) -> None:
        """The new checkpoint is good, a warning tells of the old data, and its claim stays to be swept."""
        commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        with pytest.warns(UserWarning, match="cannot be removed"):
            commit_bundle(_Failing("remove", errno.EACCES, "data"), f"{tmp_path}/x", values(2))
        assert content(tmp_path / "x") == 2
        assert [name for name in names(tmp_path) if name.endswith("-of-00001.tmp")]

    def test_a_directory_that_is_removed_meanwhile(self, tmp_path: Path) -> None:
        """The error tells what happened, and is not that of a missing checkpoint."""

        def fill(writer: BundleWriter) -> None:
            shutil.rmtree(tmp_path / "run")

        with pytest.raises(StorageError, match="was removed") as caught:
            commit_bundle(STORAGE, f"{tmp_path}/run/x", fill)
        assert caught.value.errno == errno.ENOENT

    def test_a_directory_in_the_place_of_the_state_file(self, tmp_path: Path) -> None:
        """Nothing is left of the attempt."""
        (tmp_path / "checkpoint/inside").mkdir(parents=True)
        with pytest.raises(StorageError):
            commit_file(STORAGE, f"{tmp_path}/checkpoint", b"x")
        assert names(tmp_path) == ["checkpoint"]


class TestConcurrency:
    def test_saves_of_one_prefix_take_turns(self, tmp_path: Path) -> None:
        """Whoever comes last wins, and at no time is there anything but a whole checkpoint."""
        saved: list[int] = []
        errors: list[BaseException] = []

        def save(first: int) -> None:
            try:
                for number in range(first, first + 10):
                    commit_bundle(STORAGE, f"{tmp_path}/x", values(number))
                    saved.append(number)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=save, args=(first,)) for first in (0, 100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert content(tmp_path / "x") == saved[-1]
        assert len(names(tmp_path)) in (2, 3)

    def test_a_save_that_never_ends_is_not_waited_for_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its claim is respected, and a warning says whose file it is."""
        monkeypatch.setattr(commit_module, "_PATIENCE", 0.05)
        other = Temporary.claim(f"{tmp_path}/x", new_token(), 1).path
        with STORAGE.create(other), pytest.warns(UserWarning, match="another process") as caught:
            commit_bundle(STORAGE, f"{tmp_path}/x", values(1))
        assert other in str(caught[0].message)
        data = [f"x.data-0000{shard}-of-00002" for shard in range(2)]
        assert names(tmp_path) == [*data, "x.index", Path(other).name]
        commit_bundle(STORAGE, f"{tmp_path}/x", values(2))
        assert names(tmp_path) == ["x.data-00000-of-00001", "x.index"]

    def test_what_another_save_published_meanwhile_is_replaced(self, tmp_path: Path) -> None:
        """Whichever ends last leaves no data of the other."""

        def fill(writer: BundleWriter) -> None:
            claim = next(iter(tmp_path.glob("*.tmp")))
            hidden = claim.rename(tmp_path / "hidden")
            commit_bundle(STORAGE, f"{tmp_path}/x", values(1, shards=2), shards=2)
            hidden.rename(claim)
            values(2)(writer)

        commit_bundle(STORAGE, f"{tmp_path}/x", fill)
        assert content(tmp_path / "x") == 2
        assert names(tmp_path) == ["x.data-00000-of-00001", "x.index"]


class TestFile:
    @pytest.mark.parametrize("storage", [STORAGE, MemoryStorage()])
    def test_a_file_is_replaced_whole(self, storage: Storage, tmp_path: Path) -> None:
        """The new content, nothing of the old."""
        for data in (b"a longer text", b"short"):
            commit_file(storage, f"{tmp_path}/state", data)
            assert storage.open(f"{tmp_path}/state").size == len(data)
        assert storage.list(str(tmp_path)) == ["state"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
class TestSystemCalls:
    CODE = """
import sys
import numpy as np
from milepost.series.commit import BundleCommit, commit_file
from tests.bundles import commit_bundle
from milepost.storage import LocalStorage
commit_bundle(LocalStorage(), sys.argv[1] + "/x", lambda writer: writer.add("v", np.ones(10)))
commit_file(LocalStorage(), sys.argv[1] + "/state", b"text")
"""

    def calls(self, directory: Path, tmp_path: Path) -> list[str]:
        trace = tmp_path / "trace"
        command = ["strace", "-f", "-y", "-s", "0", "-o", str(trace)]
        command += ["-e", "trace=rename,renameat,renameat2,fsync,fdatasync,unlink,unlinkat,linkat"]
        command += [sys.executable, "-c", self.CODE, str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "ptrace" in done.stderr.lower():
            pytest.skip(f"strace may not trace here: {done.stderr.strip()[:200]}")
        assert done.returncode == 0, done.stderr
        calls = []
        linked: dict[str, str] = {}
        for line in trace.read_text().splitlines():
            call = line.split(maxsplit=1)[1].split(" =")[0].strip()
            if str(directory) not in call:
                continue
            call = re.sub(r"\.milepost-[0-9a-f]{16}", "", call.replace(str(directory), "D"))
            if link := re.match(r'linkat\(.*"/proc/self/fd/(\d+)", .*"(D/.*)"', call):
                # The file had no name before, and never has one for strace.
                linked[link[1]] = link[2]
            elif sync := re.match(r"(\w+)\((\d+)<(.*?)>(\(deleted\))?\)", call):
                calls.append(f"{sync[1]}({linked[sync[2]] if sync[4] else sync[3]})")
            else:
                calls.append(call)
        return calls

    def test_the_kernel_is_asked_in_the_order_of_the_protocol(self, tmp_path: Path) -> None:
        """What the storage promises, step by step, as system calls."""
        directory = tmp_path / "run"
        directory.mkdir()
        assert self.calls(directory, tmp_path) == [
            "fsync(D/x.data-00000-of-00001.tmp)",
            "fsync(D/x.index-of-00001.tmp)",
            "fsync(D)",
            'rename("D/x.data-00000-of-00001.tmp", "D/x.data-00000-of-00001")',
            "fsync(D)",
            'rename("D/x.index-of-00001.tmp", "D/x.index")',
            "fsync(D)",
            "fsync(D/state.tmp)",
            'rename("D/state.tmp", "D/state")',
            "fsync(D)",
        ]

    def test_a_replaced_checkpoint_goes_last(self, tmp_path: Path) -> None:
        """Its data is removed when the new index is durable, and the claim to it when the data is gone for good."""
        directory = tmp_path / "run"
        commit_bundle(STORAGE, f"{directory}/x", values(1))
        calls = self.calls(directory, tmp_path)
        renamed = calls.index('rename("D/x.index-of-00002.tmp", "D/x.index")')
        assert calls[renamed + 1 : renamed + 5] == [
            "fsync(D)",
            'unlink("D/x.data-00000-of-00001")',
            "fsync(D)",
            'unlink("D/x.index-of-00001.tmp")',
        ]


def test_an_interrupt_while_a_name_is_claimed_leaves_no_claim_though_its_traceback_is_kept() -> None:
    """The next save does not wait for it."""

    def make(directory: str) -> tuple[str, list[BundleCommit]]:
        return directory, []

    def operate(setting: tuple[str, list[BundleCommit]]) -> None:
        setting[1].append(BundleCommit(STORAGE, f"{setting[0]}/ckpt", 1))

    def check(setting: tuple[str, list[BundleCommit]]) -> None:
        directory, begun = setting
        in_use = [name for name in interrupts.names_in(directory) if STORAGE.in_use(f"{directory}/{name}")]
        assert len(in_use) == len(begun)
        for each in begun:
            each.__exit__(None, None, None)

    assert interrupts.found(make, operate, check, is_kept=True) == []


def test_an_interrupt_while_a_checkpoint_is_replaced_leaves_no_claim_behind() -> None:
    """Also when the next save has replaced it."""

    def make(directory: str) -> str:
        commit_bundle(STORAGE, f"{directory}/ckpt", values(1))
        return directory

    def operate(directory: str) -> None:
        commit_bundle(STORAGE, f"{directory}/ckpt", values(2))

    def check(directory: str) -> None:
        commit_bundle(STORAGE, f"{directory}/ckpt", values(3))
        assert content(f"{directory}/ckpt") == 3
        assert not [name for name in interrupts.names_in(directory) if name.endswith(".tmp")]

    assert interrupts.found(make, operate, check, only="series/commit.py") == []

"""Incremental saves: what is shared, what is not, and that each checkpoint is whole by itself."""

from __future__ import annotations

import errno
import glob
import itertools
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    MaxShardSizePolicy,
    MilepostWarning,
    Variable,
    load_checkpoint,
)
from milepost.bundle import BundleWriter, open_bundle
from milepost.bundle.format.entry import decode
from milepost.storage import LocalStorage, MemoryStorage
from milepost.storage.memory import MemoryFile
from milepost.testing import WindowsStorage
from tests.systems import open_descriptors

INCREMENTAL = CheckpointOptions(incremental=True)
KEY = "adapter/.ATTRIBUTES/VARIABLE_VALUE"


class Run:
    """A run with a frozen base and a small adapter that changes before each save."""

    def __init__(self, base: int = 100_000, adapter: int = 1000) -> None:
        self.base = np.random.default_rng(0).random(base)
        self.checkpoint: Any = Checkpoint(base=Variable(self.base), adapter=Variable(np.zeros(adapter)))

    def save(self, prefix: object, options: CheckpointOptions = INCREMENTAL) -> str:
        self.checkpoint.adapter.assign_add(np.ones(len(self.checkpoint.adapter)))
        return self.checkpoint.save(prefix, options)  # type: ignore[no-any-return]

    def check(self, path: str, adapter: float, options: CheckpointOptions | None = None) -> None:
        """A fresh object gets everything."""
        fresh: Any = Checkpoint(
            base=Variable(np.zeros_like(self.base)), adapter=Variable(np.zeros(len(self.checkpoint.adapter)))
        )
        fresh.read(path, options).expect_partial().assert_existing_objects_matched()
        assert np.array_equal(fresh.base, self.base)
        assert np.array_equal(fresh.adapter, np.full(len(self.checkpoint.adapter), adapter))


def on_disk(directory: Path) -> int:
    """Bytes of the data files, each once however many names it has."""
    return sum(
        {status.st_ino: status.st_size for path in directory.glob("*.data-*") for status in [path.stat()]}.values()
    )


def files(prefix: str) -> list[str]:
    """The files of one checkpoint."""
    return glob.glob(f"{prefix}.*")


def inodes(prefix: str) -> set[int]:
    """The data files of one checkpoint, whatever their names."""
    return {os.stat(path).st_ino for path in files(prefix) if ".data-" in path}


def sizes(prefix: str) -> list[int]:
    """The sizes of the data files of one checkpoint."""
    return [os.path.getsize(path) for path in files(prefix) if ".data-" in path]


class TestWhatIsShared:
    def test_a_frozen_base_costs_the_adapter_alone(self, tmp_path: Path) -> None:
        """Twenty checkpoints take the base once and the adapter twenty times, and little beside them."""
        run = Run()
        paths = [run.save(tmp_path / "ckpt") for _ in range(20)]
        content = run.base.nbytes + 20 * 8 * 1000
        assert content < on_disk(tmp_path) < content + 20 * 2000
        for number, path in enumerate(paths, start=1):
            run.check(path, number)

    def test_a_full_save_is_the_default(self, tmp_path: Path) -> None:
        run = Run()
        for _ in range(3):
            run.save(tmp_path / "ckpt", CheckpointOptions())
        assert on_disk(tmp_path) > 3 * run.base.nbytes

    def test_what_all_changes_is_written_as_by_a_full_save(self, tmp_path: Path) -> None:
        """To the byte."""
        run = Run(base=10, adapter=1)
        for options, name in ((INCREMENTAL, "one"), (CheckpointOptions(), "two")):
            run.checkpoint.base.assign(run.base)
            run.checkpoint.adapter.assign([1])
            run.checkpoint.write(tmp_path / name / "ckpt-1", options)
            run.checkpoint.base.assign(run.base + 1)
            run.checkpoint.adapter.assign([2])
            run.checkpoint.write(tmp_path / name / "ckpt-2", options)
        for file in ("ckpt-2.index", "ckpt-2.data-00000-of-00001"):
            assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()

    def test_another_process_goes_on(self, tmp_path: Path) -> None:
        """A save compares with what is in the directory, whoever has saved it."""
        first, second = Run(), Run()
        second.checkpoint.restore(first.save(tmp_path / "ckpt")).assert_consumed()
        run_path = second.save(tmp_path / "ckpt")
        assert on_disk(tmp_path) < 1.1 * first.base.nbytes
        second.check(run_path, 2)

    def test_after_a_full_save(self, tmp_path: Path) -> None:
        """The option of the earlier save does not count."""
        run = Run()
        run.save(tmp_path / "ckpt", CheckpointOptions())
        run.save(tmp_path / "ckpt")
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes

    def test_a_checkpoint_that_is_replaced_is_taken_over(self, tmp_path: Path) -> None:
        """`write` to one path again and again."""
        run = Run()
        for number in range(1, 5):
            run.checkpoint.adapter.assign(np.full(1000, number))
            path = run.checkpoint.write(tmp_path / "same", INCREMENTAL)
            if number > 1:
                assert on_disk(tmp_path) < run.base.nbytes + 2 * 8 * 1000 + 5000
            run.check(path, number)

    def test_trees(self, tmp_path: Path) -> None:
        """`milepost.save` takes over what is at its path, or in the series of its path."""
        tree: dict[str, Any] = {"base": np.arange(100_000.0), "step": 1}
        for number in range(1, 4):
            milepost.save(tmp_path / f"tree-{number}", tree | {"step": number}, INCREMENTAL)
        assert on_disk(tmp_path) < 1.1 * 800_000
        for number in range(1, 4):
            loaded: Any = milepost.load(tmp_path / f"tree-{number}")
            assert loaded["step"] == number
            assert np.array_equal(loaded["base"], tree["base"])

    def test_pieces_of_tensors(self, tmp_path: Path) -> None:
        """A tensor that is cut into several files shares those of its pieces that have not changed."""
        options = CheckpointOptions(incremental=True, experimental_sharding_callback=MaxShardSizePolicy(100_000))
        checkpoint: Any = Checkpoint(v=Variable(np.zeros(100_000)))
        checkpoint.save(tmp_path / "ckpt", options)
        changed = np.zeros(100_000)
        changed[0] = 1
        checkpoint.v.assign(changed)
        path = checkpoint.save(tmp_path / "ckpt", options)
        assert on_disk(tmp_path) < 800_000 + 110_000
        load_checkpoint(path).verify()
        assert np.array_equal(milepost.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE"), changed)

    def test_one_series_among_several(self, tmp_path: Path) -> None:
        """A save compares with its own series."""
        one, other = Run(), Run(base=50_000)
        for _ in range(3):
            one.save(tmp_path / "one")
            other.save(tmp_path / "other")
        assert on_disk(tmp_path) < 1.1 * (one.base.nbytes + other.base.nbytes)

    def test_the_one_that_was_saved_last_counts_and_not_the_highest_number(self, tmp_path: Path) -> None:
        """After a run has gone back to an older checkpoint."""
        run = Run()
        path = run.save(tmp_path / "ckpt")
        run.checkpoint.base.assign(run.base + 1)
        for _ in range(3):
            run.save(tmp_path / "ckpt")
        run.checkpoint.restore(path)
        second = run.save(tmp_path / "ckpt", CheckpointOptions())
        later = time.time() + 10
        os.utime(f"{second}.index", (later, later))
        third = run.save(tmp_path / "ckpt")
        assert inodes(second) & inodes(third)
        run.check(third, 3)


class TestWhatIsNot:
    def test_a_changed_tensor_with_the_checksum_of_the_old_one(self, tmp_path: Path) -> None:
        """Equal checksums do not make tensors equal."""
        old, new = collision()
        checkpoint: Any = Checkpoint(base=Variable(np.arange(10_000.0)), v=Variable(old))
        first = checkpoint.save(tmp_path / "ckpt", INCREMENTAL)
        checkpoint.v.assign(new)
        second = checkpoint.save(tmp_path / "ckpt", INCREMENTAL)
        key = "v/.ATTRIBUTES/VARIABLE_VALUE"
        assert np.array_equal(milepost.load_variable(first, key), old)
        assert np.array_equal(milepost.load_variable(second, key), new)

    def test_damage_is_not_taken_over(self, tmp_path: Path) -> None:
        """A tensor whose stored bytes are damaged is written anew, so the new checkpoint is whole."""
        run = Run()
        first = run.save(tmp_path / "ckpt")
        data = Path(f"{first}.data-00000-of-00001")
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
        second = run.save(tmp_path / "ckpt")
        load_checkpoint(second).verify()
        run.check(second, 2)

    @pytest.mark.parametrize("damage", ["index", "data", "empty index"])
    def test_a_damaged_checkpoint_is_passed_over(self, tmp_path: Path, damage: str) -> None:
        """The one before it is compared with."""
        run = Run()
        run.save(tmp_path / "ckpt")
        second = run.save(tmp_path / "ckpt")
        if damage == "data":
            Path(f"{second}.data-00001-of-00002").unlink()
        else:
            Path(f"{second}.index").write_bytes(b"" if damage == "empty index" else b"x" * 100)
        third = run.save(tmp_path / "ckpt")
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes
        run.check(third, 3)

    def test_tensors_that_claim_the_same_bytes(self) -> None:
        """An index that no library writes. One of them is taken over, so the new checkpoint is one that verifies."""
        storage, first, second = MemoryStorage(), BundleWriter(), BundleWriter(shards=2)
        key, other = ("v/.ATTRIBUTES/VARIABLE_VALUE", "w/.ATTRIBUTES/VARIABLE_VALUE")
        first.add(key, np.ones(10_000))
        with storage.create("run/x.data-00001-of-00002") as file:
            first.write_shard(0, file)
        entry = decode(first.entries[key.encode()])
        for name in (key, other):
            second.add_stored(name, (10_000,), None, entry, shard=1)
        with storage.create("run/x.data-00000-of-00002") as file:
            second.write_shard(0, file)
        with storage.create("run/x.index") as file:
            file.write(0, [second.index()])
        live = Checkpoint(v=Variable(np.ones(10_000)), w=Variable(np.ones(10_000)))
        live.write("run/x", CheckpointOptions(incremental=True, storage=storage))
        load_checkpoint("run/x", options=CheckpointOptions(storage=storage)).verify()
        assert sum(storage.open(f"run/{name}").size for name in storage.list("run")) > 160_000

    def test_another_shape_or_element_type(self, tmp_path: Path) -> None:
        """With the same bytes."""
        values = np.zeros(20_000)
        for number, array in enumerate([values, values.reshape(100, 200), np.zeros(20_000, np.int64)]):
            checkpoint = Checkpoint(v=Variable(array))
            checkpoint.save_counter.assign(number)
            path = checkpoint.save(tmp_path / "ckpt", CheckpointOptions(incremental=True, overwrite=True))
            found = load_checkpoint(path).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
            assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert on_disk(tmp_path) > 3 * values.nbytes

    def test_tensors_keep_their_alignment(self, tmp_path: Path) -> None:
        """Those of an earlier checkpoint that are not aligned are written."""
        run = Run(adapter=1001)
        run.checkpoint.odd = Variable(np.ones(3, np.int8))
        run.save(tmp_path / "ckpt", CheckpointOptions(data_alignment=1))
        path = run.save(tmp_path / "ckpt")
        with open_bundle(LocalStorage(), path) as reader:
            offsets = [reader.entry(key).offset for key in reader.keys()]  # noqa: SIM118 - a reader is no mapping
        assert all(offset % 64 == 0 for offset in offsets)

    def test_text_is_written_each_time(self, tmp_path: Path) -> None:
        checkpoint = Checkpoint(base=Variable(np.zeros(100_000)), words=Variable(np.array(["x" * 50_000], object)))
        for _ in range(3):
            path = checkpoint.save(tmp_path / "ckpt", INCREMENTAL)
        assert 800_000 + 3 * 50_000 < on_disk(tmp_path) < 800_000 + 4 * 50_000
        assert milepost.load_variable(path, "words/.ATTRIBUTES/VARIABLE_VALUE").item() == b"x" * 50_000

    def test_a_checkpoint_in_another_directory(self, tmp_path: Path) -> None:
        run = Run()
        run.save(tmp_path / "one" / "ckpt")
        run.save(tmp_path / "two" / "ckpt")
        assert on_disk(tmp_path / "two") > run.base.nbytes
        assert all(path.stat().st_nlink == 1 for path in tmp_path.rglob("*.data-*"))


class TestBounds:
    def test_the_files_of_a_checkpoint_have_at_most_twice_its_bytes(self, tmp_path: Path) -> None:
        """Whichever tensors change."""
        random = np.random.default_rng(1)
        checkpoint: Any = Checkpoint(v=[Variable(np.full(5000, number)) for number in range(10)])
        for _ in range(30):
            for variable in checkpoint.v:
                if random.random() < 0.4:
                    variable.assign(random.integers(0, 1 << 40, 5000))
            path = checkpoint.save(tmp_path / "ckpt", INCREMENTAL)
            assert sum(sizes(path)) < 2 * 10 * 40_000 + 10_000
            load_checkpoint(path).verify()

    def test_less_than_half_is_written_again_and_shared_from_then_on(self, tmp_path: Path) -> None:
        """A file of which little is used is not taken over. What has not changed in it gets a file of its own."""
        checkpoint: Any = Checkpoint(frozen=Variable(np.zeros(30_000)), trained=Variable(np.zeros(70_000)))
        found = []
        for number in range(4):
            checkpoint.trained.assign(np.full(70_000, number))
            path = checkpoint.save(tmp_path / "ckpt", INCREMENTAL)
            found.append((inodes(path), sum(sizes(path))))
        shared = [len(one[0] & other[0]) for one, other in itertools.pairwise(found)]
        assert shared == [0, 1, 1]
        assert all(800_000 < size < 810_000 for _, size in found)

    def test_a_checkpoint_never_has_very_many_files(self, tmp_path: Path) -> None:
        """Although each save freezes one more tensor."""
        checkpoint: Any = Checkpoint(v=[Variable(np.zeros(5000)) for _ in range(50)])
        for number in range(60):
            for variable in checkpoint.v[number:]:
                variable.assign(np.full(5000, number))
            path = checkpoint.save(tmp_path / "ckpt", INCREMENTAL)
        assert len(sizes(path)) <= 35
        load_checkpoint(path).verify()
        assert sum(sizes(path)) < 2 * 50 * 40_000

    def test_a_file_of_the_earlier_checkpoint_is_never_changed(self, tmp_path: Path) -> None:
        run = Run()
        path = run.save(tmp_path / "ckpt")
        before = {each: Path(each).read_bytes() for each in files(path)}
        for _ in range(3):
            run.save(tmp_path / "ckpt")
        assert {each: Path(each).read_bytes() for each in before} == before


class TestDeletion:
    @pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
    def test_in_any_order(self, tmp_path: Path, order: tuple[int, ...]) -> None:
        """Those that are left are whole, and the last takes its space along."""
        run = Run()
        paths = [run.save(tmp_path / "ckpt") for _ in range(4)]
        for place, number in enumerate(order):
            milepost.tensorflow1.remove_checkpoint(paths[number])
            for other in order[place + 1 :]:
                load_checkpoint(paths[other]).verify()
        assert os.listdir(tmp_path) == []

    def test_a_manager_keeps_few(self, tmp_path: Path) -> None:
        """The base outlives the checkpoint that it was first saved in."""
        run = Run()
        manager = CheckpointManager(run.checkpoint, tmp_path, max_to_keep=2, options=INCREMENTAL)
        for number in range(1, 8):
            run.checkpoint.adapter.assign(np.full(1000, number))
            manager.save()
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes
        assert len(manager.checkpoints) == 2
        for number, path in zip((6, 7), manager.checkpoints, strict=True):
            run.check(path, number)
        assert not list(tmp_path.glob("*.tmp"))

    def test_a_copy_is_whole(self, tmp_path: Path) -> None:
        """Of one checkpoint alone, in another directory."""
        run = Run()
        for _ in range(3):
            path = run.save(tmp_path / "run" / "ckpt")
        (tmp_path / "copy").mkdir()
        for file in files(path):
            shutil.copy(file, tmp_path / "copy")
        shutil.rmtree(tmp_path / "run")
        run.check(f"{tmp_path}/copy/ckpt-3", 3)


class TestTogetherWith:
    def test_asynchronous_saves(self, tmp_path: Path) -> None:
        run = Run()
        options = CheckpointOptions(incremental=True, enable_async=True)
        paths = [run.save(tmp_path / "ckpt", options) for _ in range(4)]
        run.checkpoint.sync()
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes
        for number, path in enumerate(paths, start=1):
            run.check(path, number)

    @pytest.mark.filterwarnings("ignore::milepost.UnrestoredWarning")
    def test_a_restore_that_is_still_deferred(self, tmp_path: Path) -> None:
        """Values that no object has taken yet are saved again, and shared."""
        run = Run()
        path = run.save(tmp_path / "ckpt")
        half: Any = Checkpoint(adapter=Variable(np.zeros(1000)))
        half.restore(path)
        path = half.save(tmp_path / "ckpt", INCREMENTAL)
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes
        run.check(path, 1)

    def test_progress(self) -> None:
        """Bytes that are compared count as those that are written."""

        class Slow(MemoryStorage):
            def open(self, path: str) -> MemoryFile:
                file = super().open(path)
                read_into = file.read_into

                def wait(offset: int, buffer: Any) -> None:
                    time.sleep(0.05)
                    read_into(offset, buffer)

                file.read_into = wait  # type: ignore[method-assign]  # so that a save takes longer than between two calls
                return file

        run = Run(base=1_000_000)
        told: list[milepost.Progress] = []
        options = CheckpointOptions(incremental=True, storage=Slow(), progress=told.append)
        run.save("run/ckpt", options)
        told.clear()
        run.save("run/ckpt", options)
        done = [each.bytes_done for each in told]
        assert done == sorted(done)
        assert done[-1] == told[-1].bytes_total == run.base.nbytes + 8000 + 8
        assert any(1_000_000 < each < 7_000_000 for each in done)

    def test_metadata(self, tmp_path: Path) -> None:
        run = Run()
        manager = CheckpointManager(run.checkpoint, tmp_path, max_to_keep=None, options=INCREMENTAL)
        for number in range(3):
            manager.save(metrics={"loss": number}, metadata={"number": number})
        assert [manager.metadata(number) for number in (1, 2, 3)] == [{"number": number} for number in range(3)]
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes

    @pytest.mark.parametrize("make", [MemoryStorage, WindowsStorage])
    def test_other_storages(self, make: Any) -> None:
        """Also one that neither removes nor replaces open files."""
        storage = make()
        options = CheckpointOptions(incremental=True, storage=storage)
        run = Run(base=1000, adapter=100)
        storage.make_directory("run")
        paths = [run.save("run/ckpt", options) for _ in range(3)]
        run.checkpoint.write("run/same", options)
        run.checkpoint.write("run/same", options)
        for number, path in enumerate(paths, start=1):
            run.check(path, number, options)
        assert not [name for name in storage.list("run") if name.endswith(".tmp")]

    def test_a_relative_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        run = Run()
        for number in (1, 2):
            run.check(run.save("ckpt"), number)
        assert on_disk(tmp_path) < 1.1 * run.base.nbytes


class WithoutLinks(MemoryStorage):
    """A storage that links nothing, for one of several reasons."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def link(self, source: str, target: str) -> None:
        raise self.error


class WithoutMethod(MemoryStorage):
    link = None  # type: ignore[assignment]  # as if there were none


class TestRefusals:
    @pytest.mark.parametrize(
        "storage",
        [
            *(
                WithoutLinks(milepost.StorageError("no", errno=code, file="run/x"))
                for code in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP)
            ),
            WithoutLinks(milepost.CheckpointNotFoundError("gone", file="run/x")),
            WithoutLinks(ConnectionResetError("the bucket is gone")),
            WithoutMethod(),
        ],
        ids=lambda storage: type(getattr(storage, "error", storage)).__name__,
    )
    def test_everything_is_written_then(self, storage: Any) -> None:
        """And a warning says why, once."""
        options = CheckpointOptions(incremental=True, storage=storage)
        run = Run(base=1000, adapter=100)
        run.save("run/ckpt", options)
        with pytest.warns(
            MilepostWarning, match="cannot be linked.* save to a file system with hard links, or without"
        ) as told:
            path = run.save("run/ckpt", options)
        assert len(told) == 1
        assert told[0].filename == __file__
        run.check(path, 2, options)
        assert storage.open("run/ckpt-2.data-00001-of-00002").size == 8000
        assert [name for name in storage.list("run") if name.endswith(".tmp")] == []

    def test_the_earlier_checkpoint_is_replaced_while_it_is_compared(self) -> None:
        """By another process. Its new data is not taken for the old."""
        replaced = False

        class Replacing(MemoryStorage):
            def link(self, source: str, target: str) -> None:
                nonlocal replaced
                if not replaced:
                    replaced = True
                    for _ in range(2):  # so that the data file has the same name again
                        other = Checkpoint(base=Variable(np.zeros(1000)), adapter=Variable(np.zeros(100)))
                        other.write("run/ckpt-1", CheckpointOptions(storage=self))
                super().link(source, target)

        options = CheckpointOptions(incremental=True, storage=Replacing())
        run = Run(base=1000, adapter=100)
        run.save("run/ckpt", options)
        path = run.save("run/ckpt", options)
        assert replaced
        run.check(path, 2, options)

    def test_the_earlier_checkpoint_is_removed_while_it_is_compared(self) -> None:
        class Removing(MemoryStorage):
            compared = False

            def open(self, path: str) -> MemoryFile:
                if ".data" in path and self.compared:
                    self.compared = False
                    milepost.tensorflow1.remove_checkpoint("run/ckpt-1", options=CheckpointOptions(storage=self))
                return super().open(path)

        storage = Removing()
        options = CheckpointOptions(incremental=True, storage=storage)
        run = Run(base=1000, adapter=100)
        run.save("run/ckpt", options)
        storage.compared = True
        path = run.save("run/ckpt", options)
        run.check(path, 2, options)

    def test_the_warning_has_the_reason_of_the_operating_system(self) -> None:
        """Without a name of a file, which differs from save to save."""
        error = milepost.StorageError("no", errno=errno.EXDEV, file="run/x")
        options = CheckpointOptions(incremental=True, storage=WithoutLinks(error))
        run = Run(base=1000, adapter=100)
        run.save("run/ckpt", options)
        with pytest.warns(MilepostWarning, match=re.escape(f"linked: {os.strerror(errno.EXDEV)};")):
            run.save("run/ckpt", options)

    @pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make symbolic links")
    def test_a_symbolic_link_is_not_shared(self, tmp_path: Path) -> None:
        """Whoever owns the file that it leads to may change it."""
        run = Run()
        first = run.save(tmp_path / "ckpt")
        data = Path(f"{first}.data-00000-of-00001")
        (tmp_path / "elsewhere").mkdir()
        data.rename(tmp_path / "elsewhere" / data.name)
        data.symlink_to(tmp_path / "elsewhere" / data.name)
        with pytest.warns(MilepostWarning, match="cannot be linked"):
            second = run.save(tmp_path / "ckpt")
        assert not any(path.is_symlink() for path in tmp_path.glob("ckpt-2*"))
        assert (tmp_path / "elsewhere" / data.name).stat().st_nlink == 1
        run.check(second, 2)

    def test_no_file_stays_open(self, tmp_path: Path) -> None:
        run = Run()
        for _ in range(3):
            run.save(tmp_path / "ckpt")
        assert not [name for name in open_descriptors() if str(tmp_path) in name]

    def test_the_option_is_true_or_false(self) -> None:
        with pytest.raises(milepost.UnsupportedError, match="incremental"):
            CheckpointOptions(incremental="yes")  # type: ignore[arg-type]


def collision() -> tuple[Any, Any]:
    """Two arrays of different bytes with one checksum: it is linear, so some combination of 33 bits gives none."""
    from milepost.coding.crc32c import crc32c

    size, zero = 8 * 100, crc32c(bytes(8 * 100))
    basis: dict[int, tuple[int, int]] = {}
    for bit in range(33):
        data = bytearray(size)
        data[bit // 8] = 1 << bit % 8
        value, made = crc32c(bytes(data)) ^ zero, 1 << bit
        for high in sorted(basis, reverse=True):
            if value >> high & 1:
                value, made = value ^ basis[high][0], made ^ basis[high][1]
        if not value:
            other = made.to_bytes(8, "little").ljust(size, b"\0")
            assert crc32c(other) == zero
            return np.zeros(100), np.frombuffer(other).copy()
        basis[value.bit_length() - 1] = value, made
    raise AssertionError("33 vectors of 32 bits depend on each other")

"""Removals make room on a device without a free block: on real file systems of a few megabytes, for every command and call that removes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, StorageError, Variable
from milepost.storage import LocalStorage
from milepost.tensorflow1 import remove_checkpoint

VALUES = 40_000
"""Of float32, in each checkpoint."""


def mount(kind: str, directory: Path, beside: Path) -> None:
    """Mounts a file system of a few megabytes at a directory, or skips the test."""
    if kind == "tmpfs":
        commands = [["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]]
    else:
        image = beside / "image"
        with open(image, "wb") as file:
            file.truncate(4 << 20)
        commands = [["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(directory)]]
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"only root can mount a small file system here: {error}")


@pytest.fixture(params=["tmpfs", "ext4"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A run of five checkpoints, on a file system of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount(request.param, disk, tmp_path)
    try:
        manager = managed(disk / "run")
        for step in range(1, 6):
            manager.save(step)
        yield disk / "run"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def managed(
    directory: Path, max_to_keep: int | None = None, options: CheckpointOptions | None = None
) -> CheckpointManager:
    checkpoint = Checkpoint(w=Variable(np.zeros(VALUES, np.float32)))
    return CheckpointManager(checkpoint, directory, max_to_keep, options=options)


def fill(run: Path) -> None:
    """Leaves no free block."""
    with open(run.parent / "filler", "wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
        os.fsync(file.fileno())


def fill_names(run: Path) -> None:
    """Leaves no room for another name in the directory of the run, where a file system needs a block for more names."""
    with suppress(OSError):
        for number in range(200):
            os.close(os.open(run / f"{number}-{'x' * 80}", os.O_CREAT | os.O_WRONLY))


def indexes(run: Path) -> list[str]:
    return sorted(path.stem for path in run.glob("*.index"))


def leftovers(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("*.tmp"))


def milepost(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "milepost", *arguments], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def prune(run: Path) -> None:
    milepost("prune", str(run), "--keep", "2", "--delete")


def remove(run: Path) -> None:
    milepost("rm", *(str(run / f"ckpt-{step}") for step in (1, 2, 3)))


def delete(run: Path) -> None:
    manager = managed(run)
    for step in (1, 2, 3):
        manager.delete(step)
    assert manager.steps == [4, 5]


def remove_by_name(run: Path) -> None:
    for step in (1, 2, 3):
        remove_checkpoint(run / f"ckpt-{step}")


@pytest.mark.parametrize("way", [prune, remove, delete, remove_by_name])
def test_checkpoints_can_be_removed(run: Path, way: Callable[[Path], None]) -> None:
    fill(run)
    fill_names(run)
    way(run)
    assert indexes(run) == ["ckpt-4", "ckpt-5"]
    assert leftovers(run) == []
    assert managed(run).steps == [4, 5]


def test_a_save_that_does_not_fit_fits_after_a_removal(run: Path) -> None:
    manager = managed(run)
    manager.restore_or_initialize()
    fill(run)
    with pytest.raises(StorageError):
        manager.save(6)
    assert (manager.steps, indexes(run)) == ([1, 2, 3, 4, 5], [f"ckpt-{step}" for step in range(1, 6)])
    for step in (1, 2, 3):
        manager.delete(step)
    manager.save(6)
    assert managed(run).steps == [4, 5, 6]


class FillsAtCommit(LocalStorage):
    """Fills the device when the index of a checkpoint is visible, and before it is listed."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith("ckpt-6.index"):
            fill(Path(target).parent)


def test_the_pruning_of_a_manager_makes_room_for_its_list(run: Path) -> None:
    manager = managed(run, 2, CheckpointOptions(storage=FillsAtCommit()))
    manager.restore_or_initialize()
    manager.save(6)
    assert indexes(run) == ["ckpt-5", "ckpt-6"]
    assert managed(run, 2).steps == [5, 6]


def test_data_without_an_index_can_be_removed(run: Path) -> None:
    (run / "ckpt-3.index").unlink()
    fill(run)
    fill_names(run)
    milepost("rm", str(run / "ckpt-3"))
    assert leftovers(run) == []
    assert managed(run).steps == [1, 2, 4, 5]
    assert not list(run.glob("ckpt-3.*"))


def test_what_a_killed_save_left_can_be_removed(run: Path) -> None:
    (run / "ckpt-6.index.milepost-0123456789abcdef-of-00001.tmp").touch()
    (run / "ckpt-6.data-00000-of-00001").write_bytes(bytes(1000))
    fill(run)
    fill_names(run)
    milepost("repair", str(run))
    assert leftovers(run) == []
    assert not (run / "ckpt-6.data-00000-of-00001").exists()

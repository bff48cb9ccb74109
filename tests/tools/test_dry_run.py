"""On the storage of a dry run, every change is seen, and none reaches the disk."""

import os

import pytest

from milepost import Checkpoint, CheckpointNotFoundError, CheckpointOptions, Variable, latest_checkpoint
from milepost.tensorflow1 import remove_checkpoint
from milepost.tools.dry_run import DryRunStorage
from tests.bundle.bundles import content, put
from tests.tools.commands import contents


def test_every_change_is_seen_and_none_is_made(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode())
    before = contents(tmp_path)
    storage, directory = DryRunStorage(), str(tmp_path)
    storage.remove(f"{directory}/a")
    storage.rename(f"{directory}/b", f"{directory}/d")
    storage.link(f"{directory}/c", f"{directory}/e")
    put(storage, f"{directory}/f", b"new")
    storage.make_directory(f"{directory}/g")
    storage.sync_directory(directory)
    assert sorted(storage.list(directory)) == ["c", "d", "e", "f", "g"]
    assert [content(storage, f"{directory}/{name}") for name in "cdef"] == [b"c", b"b", b"c", b"new"]
    assert [storage.is_file(f"{directory}/{name}") for name in "abcdef"] == [False, False, True, True, True, True]
    assert {os.path.basename(path) for path in storage.removed} == {"a", "b"}
    with pytest.raises(CheckpointNotFoundError):
        storage.open(f"{directory}/a")
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_deletion_can_be_tried(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    paths = [checkpoint.save(tmp_path / "ckpt") for _ in range(2)]
    before, storage = contents(tmp_path), DryRunStorage()
    assert remove_checkpoint(paths[1], options=CheckpointOptions(storage=storage))
    assert {os.path.basename(path) for path in storage.removed} >= {"ckpt-2.index", "ckpt-2.data-00000-of-00001"}
    assert latest_checkpoint(tmp_path) == paths[1]
    assert contents(tmp_path) == before

"""What a program hears from the logger `milepost`."""

import logging
import re
import subprocess
import sys

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, SkippedCheckpointWarning


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="milepost")

    def taken():
        found = [
            (each.name, each.levelname, re.sub(r"\d+\.\d{3} s$", "0 s", each.getMessage())) for each in caplog.records
        ]
        caplog.clear()
        assert {(name, level) for name, level, _ in found} <= {("milepost", "INFO")}
        return [text for *_, text in found]

    return taken


def run(**values):
    return Checkpoint(w=np.ones(4, np.float32), **values)


def test_a_save_and_a_restore_are_a_line_each(tmp_path, lines):
    path = run().write(tmp_path / "ckpt")
    assert lines() == [f"saved {path}: 1 values, 16 bytes, 0 s"]
    run().read(path)
    assert lines() == [f"restored {path}: 1 values, 0 s"]


def test_deferred_values_are_counted(tmp_path, lines):
    path = run(net=Checkpoint(v=np.ones(2))).write(tmp_path / "ckpt")
    lines()
    run(net=Checkpoint()).read(path).expect_partial()
    assert lines() == [f"restored {path}: 1 values, 1 deferred, 0 s"]


def test_an_asynchronous_save_is_told_when_it_is_durable(tmp_path, lines):
    checkpoint = run()
    path = checkpoint.save(tmp_path / "ckpt", CheckpointOptions(enable_async=True))
    checkpoint.sync()
    (line,) = lines()
    assert line.startswith(f"saved {path}: ")


def test_a_save_that_fails_says_nothing(tmp_path, lines):
    (tmp_path / "file").touch()
    with pytest.raises(milepost.StorageError):
        run().write(tmp_path / "file" / "ckpt")
    assert lines() == []


def test_what_a_manager_removes_and_skips(tmp_path, lines):
    manager = CheckpointManager(run(), tmp_path, max_to_keep=2)
    paths = [manager.save() for _ in range(3)]
    assert [line for line in lines() if not line.startswith("saved")] == [f"removed {paths[0]}"]
    (tmp_path / "ckpt-3.data-00000-of-00001").write_bytes(b"")
    manager = CheckpointManager(run(), tmp_path, max_to_keep=2)
    with pytest.warns(SkippedCheckpointWarning):
        manager.restore_or_initialize()
    restored, skipped = lines()
    assert skipped.startswith(f"skipped {paths[2]}: ")
    assert restored.startswith(f"restored {paths[1]}: 2 values")
    manager.delete(2)
    assert lines() == [f"removed {paths[1]}"]


def test_a_file_by_names_is_told_too(tmp_path, lines):
    np.savez(tmp_path / "a.npz", w=np.zeros(4, np.float32))
    run().read(tmp_path / "a.npz")
    assert lines() == [f"restored {tmp_path / 'a.npz'}: 1 values, 0 s"]


@pytest.mark.parametrize("imported", ["", "import logging; logging.basicConfig(); "])
def test_nothing_is_heard_by_default(tmp_path, imported):
    code = f"{imported}import milepost, sys; path = milepost.Checkpoint(n=1).write('ckpt'); milepost.Checkpoint(n=0).read(path)"
    code += "; print('logging' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(bool(imported))
    assert done.stderr == ""


def test_after_an_error_of_the_programs_log_deferred_values_still_come(tmp_path, caplog):
    net = milepost.Module()
    net.v = milepost.Variable(1.0)
    path = Checkpoint(net=net).write(tmp_path / "ckpt")
    net = milepost.Module()
    root = Checkpoint(net=net)

    def refuse(record):
        raise RuntimeError("no")

    caplog.set_level(logging.INFO, "milepost")
    logger = logging.getLogger("milepost")
    logger.addFilter(refuse)
    try:
        with pytest.raises(RuntimeError, match="no"):
            root.read(path)
    finally:
        logger.removeFilter(refuse)
    net.v = milepost.Variable(0.0)
    assert net.v.numpy() == 1.0

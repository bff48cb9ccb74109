"""Checkpoints under the paths that a trainer chooses: a directory for each, with one checkpoint in it.

A save under a path that exists writes ``<path>/ckpt-<number>`` and lists it in the state file of that directory, and only then
removes what was there. A new path appears by one rename, when its checkpoint is durable.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from milepost.bundle import index_path
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError
from milepost.manager import CheckpointManager
from milepost.series.directory import latest_in
from milepost.series.state_file import STATE_FILE, state_of
from milepost.storage.default import DEFAULT_STORAGE
from milepost.storage.local import LocalStorage
from milepost.storage.paths import check_local, plain_path
from milepost.trainers.whole_state import WholeState


def write_path(state: Any, path: str) -> None:
    """Saves a state under a path, and replaces what is there. When it returns, the checkpoint is durable.

    Raises:
        UnsupportedError: The state has a part that is not plain data.
        StorageError: The files cannot be written. What was there is unchanged.
    """
    path = plain_path(path).rstrip("/")
    check_local(path)
    is_new = os.path.islink(path) or not os.path.isdir(path)
    directory = _unfinished(path) if is_new else path
    if is_new and os.path.isdir(directory):
        shutil.rmtree(directory)
    options = CheckpointOptions(process_local=True, overwrite=True)
    manager = CheckpointManager(Checkpoint(run=WholeState(state)), directory, max_to_keep=1, options=options)
    numbers = manager.steps
    manager.save(numbers[-1] + 1 if numbers else 1)
    if is_new:
        if os.path.islink(path) or os.path.isfile(path):
            os.remove(path)
        os.rename(directory, path)
        LocalStorage().sync_directory(os.path.dirname(path) or ".")


def is_checkpoint(path: str) -> bool:
    """Whether a path is that of a checkpoint of milepost: a directory with a state file, or a prefix."""
    return os.path.isfile(os.path.join(path, STATE_FILE)) or os.path.isfile(index_path(path))


def read_path(path: str) -> Any:
    """The state that is saved under a path, or as a checkpoint of a run.

    Raises:
        CheckpointNotFoundError: There is no checkpoint. This is a ``FileNotFoundError``.
        CorruptCheckpointError: It is damaged, or holds something else.
    """
    prefix = path if os.path.isfile(index_path(path)) else _newest(path)
    if prefix is None:
        raise CheckpointNotFoundError("there is no checkpoint", file=path, expected="a path that was saved to")
    whole_state = WholeState()
    Checkpoint(run=whole_state).read(prefix, CheckpointOptions(process_local=True)).expect_partial()
    if whole_state.state is None:
        raise not_of("a trainer", prefix)
    return whole_state.state


def not_of(trainer: str, file: str) -> CorruptCheckpointError:
    """The error for a checkpoint that holds something else."""
    return CorruptCheckpointError(
        f"this checkpoint does not hold a run of {trainer}",
        file=file,
        expected=f"what milepost has saved for {trainer}",
        remedy="restore it with the objects that saved it: milepost.Checkpoint(...).restore(path)",
    )


def remove_path(path: str) -> None:
    """Removes what is saved under a path: a directory, a file, or a link to one."""
    if os.path.islink(path) or os.path.isfile(path):
        os.remove(path)
    elif os.path.isdir(path):
        gone = _unfinished(path)
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(path, gone)  # so that no part of it is left under its name if the process is killed
        shutil.rmtree(gone)


def _newest(directory: str) -> str | None:
    """The newest good checkpoint of a directory; if all are damaged, the newest one, whose error says how."""
    newest = latest_in(DEFAULT_STORAGE, directory)
    if newest is not None:
        return newest
    state = state_of(DEFAULT_STORAGE, directory)
    return None if state is None else state.newest_first()[0]


def _unfinished(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.milepost-unfinished")

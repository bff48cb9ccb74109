"""The state file of a directory. Its name is ``checkpoint``, and it names the latest checkpoint and all managed ones.

`milepost.series.state_format` has the grammar of its text. Paths in the file are relative to its directory, or absolute. They have
``/`` between names on every system; on Windows ``\\``, as TensorFlow writes there, is read too. In memory they are joined to the
directory as the caller passed it.
"""

from __future__ import annotations

import os
from types import EllipsisType
from typing import Final

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StateFileError, UnsupportedError, warn
from milepost.series.commit import commit_file
from milepost.series.state_format import CheckpointState as CheckpointState  # which this module reads and writes
from milepost.series.state_format import check_encodable, format_state, not_understood, parse_state
from milepost.series.whole_files import read_whole
from milepost.storage import Storage
from milepost.storage.checked import checked, conditional
from milepost.storage.paths import (
    has_directory,
    plain_path,
    relative_path,
    with_own_separators,
    with_slashes,
)

STATE_FILE: Final = "checkpoint"
"""The name that TensorFlow gives the file."""

PathLike = str | os.PathLike[str]

_MOST_BYTES: Final = 64 << 20
"""Enough for half a million checkpoints. A larger file is something else."""


def check_recordable(path: str) -> None:
    """Checks that a state file can hold the path of a checkpoint, and does not have this path itself.

    Raises:
        StateFileError: The path has no UTF-8 form.
        UnsupportedError: The path is that of the state file.
    """
    if os.path.basename(path) == STATE_FILE:
        raise UnsupportedError(
            "a checkpoint that is listed cannot have the name of the state file",
            file=path,
            expected=f"another name than {STATE_FILE}",
            remedy="save under another name",
        )
    check_encodable(path)


def state_of(storage: Storage, directory: str, latest_filename: str | None = None) -> CheckpointState | None:
    """The state of a directory; None if there is no state file. Arguments and errors are those of `milepost.get_checkpoint_state`."""
    data = read_state_file(storage, directory, latest_filename)
    if data is None:
        return None
    state = parse_state(data, _state_path(directory, latest_filename))
    start = os.path.join(directory, "")

    def joined(path: str) -> str:
        return os.path.join(directory, with_own_separators(path)) if has_directory(path) else start + path

    return CheckpointState(
        joined(state.model_checkpoint_path),
        tuple(map(joined, state.all_model_checkpoint_paths)),
        state.all_model_checkpoint_timestamps,
        state.last_preserved_timestamp,
    )


def read_state_file(storage: Storage, directory: str, latest_filename: str | None = None) -> bytes | None:
    """The text of the state file of a directory. None if there is no state file.

    Raises:
        StateFileError: It is too large to be a state file, or it is a named pipe or a device.
        StorageError: The file cannot be read.
    """
    path = _state_path(directory, latest_filename)
    try:
        file = storage.open(path)
    except CheckpointNotFoundError:
        return None
    except CorruptCheckpointError as error:
        if not storage.is_directory(path):
            raise not_understood(path, None, "a file", str(error.found)) from None
        warn(
            f"{path} is a directory and not a state file, so no checkpoints are listed: rename it, or save to another directory"
        )
        return None
    try:
        if file.size > _MOST_BYTES:
            raise not_understood(path, None, f"at most {_MOST_BYTES} bytes", f"{file.size} bytes")
        return file.read(0, file.size)
    finally:
        file.close()


def read_to_change(storage: Storage, directory: str, latest_filename: str | None = None) -> bytes | None:
    """The text of a state file that is to be replaced, for ``present`` of `record_state`. None if there is none, and on a disk, which does not compare.

    Raises:
        StorageError: The file cannot be read.
    """
    path = _state_path(directory, latest_filename)
    return None if conditional(storage, path) is None else read_whole(storage, path)


def record_state(
    directory: PathLike,
    state: CheckpointState,
    latest_filename: str | None = None,
    *,
    storage: Storage | None = None,
    present: bytes | EllipsisType | None = ...,
) -> bytes:
    """Writes the state file of a directory, atomically and durably, with all paths relative to the directory.

    Such a directory can be moved.

    Args:
        directory: The directory.
        state: What to write, with paths as `state_of` gives them, beginning with ``directory`` or absolute.
        latest_filename: Name of the state file; by default ``checkpoint``.
        storage: Where the directory is; by default on this machine.
        present: What `read_to_change` returned before the state was made. A store refuses to write the file if another process has changed it
            since. By default it replaces whatever is there.

    Returns:
        The text of the file.

    Raises:
        RuntimeError: The latest checkpoint has the path of the state file.
        StateFileError: A path has no UTF-8 form.
        StorageError: The file cannot be written. The existing one is unchanged. If another process has changed it, ``errno`` is EEXIST.
    """
    directory = plain_path(directory)
    start = os.path.join(directory, "")

    def relative(path: str) -> str:
        inside = path.removeprefix(start)
        if len(inside) < len(path) and not has_directory(inside):
            return inside
        return with_slashes(relative_path(path, directory))

    return write_state(
        directory,
        CheckpointState(
            relative(state.model_checkpoint_path),
            tuple(map(relative, state.all_model_checkpoint_paths)),
            state.all_model_checkpoint_timestamps,
            state.last_preserved_timestamp,
        ),
        latest_filename,
        storage,
        present,
    )


def write_state(
    directory: str,
    state: CheckpointState,
    latest_filename: str | None,
    storage: Storage | None,
    present: bytes | EllipsisType | None = ...,
) -> bytes:
    """Writes a state as it is. Arguments, result and errors are those of `record_state`."""
    path = _state_path(directory, latest_filename)
    if os.path.normpath(os.path.join(directory, state.model_checkpoint_path)) == os.path.normpath(path):
        raise RuntimeError(f"a checkpoint cannot have the path of the state file, {path}; save under another name")
    storage = checked(storage)
    if storage.is_directory(path):
        raise StateFileError(
            "a directory has the name of the state file",
            file=path,
            expected="a file",
            found="a directory",
            remedy="rename that directory, or save checkpoints to another one",
        )
    text = format_state(state)
    if isinstance(present, EllipsisType):
        present = read_to_change(storage, directory, latest_filename)
    commit_file(storage, path, text, present)
    return text


def _state_path(directory: str, latest_filename: str | None) -> str:
    return os.path.join(directory, latest_filename or STATE_FILE)

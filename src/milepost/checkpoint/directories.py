"""Which checkpoints a directory has: the latest, new ones, and those that its state file lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.series.directory import Verification, latest_in, new_checkpoints
from milepost.series.state_file import CheckpointState, state_of
from milepost.storage.paths import plain_path

PathLike = str | os.PathLike[str]


@takes_options("restore")
def latest_checkpoint(
    path: PathLike,
    latest_filename: str | None = None,
    *,
    verify: Verification = "checksums",
    options: CheckpointOptions | None = None,
) -> str | None:
    """Finds the newest good checkpoint of a directory.

    This is the latest checkpoint that the state file names, or one that a killed process had saved but not listed. If it is
    damaged or missing, it is skipped with a warning, and the next older one is tried: the next one in the list, or the one with
    the next lower number of the same series. Results are remembered until the files change, so the next call does not read
    the files again. In a copied directory the copies are used, even if the state file names the originals. A directory that is
    a SavedModel without a state file has the checkpoint of its variables.

    Args:
        path: The directory.
        latest_filename: Name of the state file; by default ``checkpoint``.
        verify: ``"checksums"`` reads every byte of the newest checkpoint, ``"files"`` reads its index and the sizes of its
            files, ``"none"`` only checks that it exists.
        options: How to read: where the directory is.

    Returns:
        The checkpoint's prefix, which begins with ``path`` as it was passed, for ``restore``. None if there is
        neither a state file nor a SavedModel, or no checkpoint is good. If another process saves and removes checkpoints
        meanwhile, the checkpoint existed when this returned.

    Raises:
        CheckpointNotFoundError: The directory is a SavedModel that has no variables.
        StateFileError: The state file is malformed.
        StorageError: A file cannot be read, and the reason is not damage but, for example, a missing permission.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> latest_checkpoint(directory) is None
        True
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> latest_checkpoint(directory) == path
        True
    """
    return latest_in(storage_of(resolved(options)), plain_path(path), latest_filename, verify)


@takes_options("restore")
def checkpoints_iterator(
    path: PathLike,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    *,
    verify: Verification = "checksums",
    options: CheckpointOptions | None = None,
) -> Iterator[str]:
    """Waits for new checkpoints of a directory, and yields the newest each time.

    If there are several new checkpoints, only the newest is yielded. The directory is read once a second.

    Args:
        path: The directory.
        min_interval_secs: The smallest number of seconds between two checkpoints.
        timeout: The largest number of seconds to wait for the next checkpoint. By default there is no limit.
        timeout_fn: A function without arguments, called after each timeout and after each checkpoint. The iteration ends
            when it returns true. Without it, the iteration ends with the first timeout.
        verify: As for `latest_checkpoint`.
        options: How to read: where the directory is.

    Raises:
        StateFileError: The state file is malformed.
        StorageError: As for `latest_checkpoint`.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> list(checkpoints_iterator(directory, timeout=0)) == [path]
        True
    """
    storage = storage_of(resolved(options))
    return new_checkpoints(storage, plain_path(path), min_interval_secs, timeout, timeout_fn, verify)


@takes_options("restore")
def get_checkpoint_state(
    path: PathLike, latest_filename: str | None = None, *, options: CheckpointOptions | None = None
) -> CheckpointState | None:
    """Reads the state file of a directory.

    TensorFlow treats a malformed file as if there were none, so that training starts over without a message. This raises an
    error.

    Args:
        path: The directory.
        latest_filename: Name of the state file; by default ``checkpoint``.
        options: How to read: where the directory is.

    Returns:
        The state, with relative paths joined to ``path``. None if there is no state file.

    Raises:
        StateFileError: A ``ValueError``: the file is malformed.
        StorageError: The file cannot be read.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> get_checkpoint_state(directory).model_checkpoint_path == path
        True
    """
    return state_of(storage_of(resolved(options)), plain_path(path), latest_filename)

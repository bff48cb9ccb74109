"""Functions of ``tf.compat.v1.train`` for the files of a directory.

What sessions of TensorFlow 1 call on a `milepost.Checkpoint`, as the saver of a ``Scaffold``, is in `milepost.checkpoint.sessions`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.errors import warn
from milepost.series.directory import identifying_path
from milepost.series.removal import is_left, remove_files, remove_for_good, remove_graph, take_off_the_list
from milepost.series.state_file import CheckpointState, write_state
from milepost.storage import LocalStorage
from milepost.storage.checked import unchecked
from milepost.storage.paths import check_local, plain_path, relative_path, with_slashes

__all__ = ["checkpoint_exists", "get_checkpoint_mtimes", "remove_checkpoint", "update_checkpoint_state"]

PathLike = str | os.PathLike[str]


@takes_options()
def checkpoint_exists(path: PathLike, *, options: CheckpointOptions | None = None) -> bool:
    """Whether a checkpoint exists, or any file or directory with exactly this path. Nothing is verified.

    Args:
        path: The checkpoint. The path of an index is accepted too.
        options: How to read: where the checkpoint is.

    Example:
        >>> checkpoint_exists("there/is/none")
        False
    """
    return identifying_path(storage_of(resolved(options)), plain_path(path)) is not None


@takes_options()
def get_checkpoint_mtimes(paths: Iterable[PathLike], *, options: CheckpointOptions | None = None) -> list[float]:
    """When checkpoints were written, in whole seconds since the epoch. Checkpoints that do not exist are left out.

    Args:
        paths: The checkpoints.
        options: How to read: where they are.

    Example:
        >>> get_checkpoint_mtimes(["there/is/none"])
        []
    """
    storage = storage_of(resolved(options))
    files = (identifying_path(storage, plain_path(each)) for each in paths)
    return [float(math.floor(storage.modified(path))) for path in files if path is not None]


@takes_options()
def remove_checkpoint(
    path: PathLike,
    checkpoint_format_version: int = 2,
    meta_graph_suffix: str = "meta",
    *,
    options: CheckpointOptions | None = None,
) -> bool:
    """Removes the files of a checkpoint, its index before its data, and its entry in the state file.

    If it was the latest checkpoint, the newest of the others becomes the latest. If the state file names no other checkpoint,
    the state file is removed too. If there is no such checkpoint, a `MilepostWarning` is issued. If the process is
    killed meanwhile, the next `CheckpointManager` of the directory completes the removal.

    Args:
        path: The checkpoint. The characters ``*``, ``?`` and ``[`` in it have no special meaning.
        checkpoint_format_version: 2, or 1 for the format before TensorFlow 0.12.
        meta_graph_suffix: The ending of the file that holds the graph of TensorFlow 1.
        options: How to remove: where the checkpoint is.

    Returns:
        Whether a file was removed.

    Raises:
        StateFileError: The state file of the directory is malformed. Nothing was removed.
        StorageError: A file cannot be removed.
        UnsupportedError: The checkpoint is pinned. Nothing was removed.

    Example:
        >>> import milepost, os, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> remove_checkpoint(path)
        True
        >>> os.listdir(directory)
        []
    """
    storage = storage_of(resolved(options))
    prefix = plain_path(path)
    if checkpoint_format_version == 1 or not is_left(storage, prefix):
        take_off_the_list(storage, os.path.dirname(prefix), prefix)
        removed = remove_files(storage, prefix, checkpoint_format_version, meta_graph_suffix)
    else:
        removed = remove_for_good(storage, prefix)
        remove_graph(storage, prefix, meta_graph_suffix)
    if not removed:
        warn(f"there is no checkpoint {prefix or repr(prefix)}, so none was removed")
    return removed


@takes_options()
def update_checkpoint_state(
    path: PathLike,
    model_checkpoint_path: PathLike,
    all_model_checkpoint_paths: Iterable[PathLike] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
    *,
    options: CheckpointOptions | None = None,
) -> None:
    """Writes the state file of a directory, atomically and durably, as ``tf.compat.v1.train`` does.

    If ``path`` is relative, relative paths must begin with it, and are written relative to it. All other paths are written
    as they are.

    Args:
        path: The directory.
        model_checkpoint_path: The latest checkpoint.
        all_model_checkpoint_paths: All checkpoints, oldest first. The latest is added if it is not the last.
        latest_filename: Name of the state file; by default ``checkpoint``.
        all_model_checkpoint_timestamps: When each of ``all_model_checkpoint_paths`` was saved, in seconds since the epoch.
        last_preserved_timestamp: When the last preserved checkpoint was saved.
        options: How to write: where the directory is.

    Raises:
        ValueError: The number of timestamps is not that of the paths.
        RuntimeError: The latest checkpoint has the path of the state file.
        StateFileError: A path has no UTF-8 form.
        StorageError: The file cannot be written. The existing one is unchanged.
        UnsupportedError: A path is a URL or begins with ``~``, and the storage is that of this machine.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> update_checkpoint_state(directory, "ckpt-2", ["ckpt-1"])
        >>> print(open(directory + "/checkpoint").read(), end="")
        model_checkpoint_path: "ckpt-2"
        all_model_checkpoint_paths: "ckpt-1"
        all_model_checkpoint_paths: "ckpt-2"
    """
    storage = storage_of(resolved(options))
    directory, latest = plain_path(path), plain_path(model_checkpoint_path)
    paths = [plain_path(each) for each in all_model_checkpoint_paths or ()]
    if not paths or paths[-1] != latest:
        paths.append(latest)
    if isinstance(unchecked(storage), LocalStorage):
        for each in paths:
            check_local(each)
    timestamps = tuple(all_model_checkpoint_timestamps or ())
    if timestamps and len(timestamps) != len(paths):
        raise ValueError(f"{len(timestamps)} timestamps for {len(paths)} checkpoint paths: {timestamps}, {paths}")

    def written(path: str) -> str:
        return with_slashes(path if os.path.isabs(directory) or os.path.isabs(path) else relative_path(path, directory))

    state = CheckpointState(written(latest), tuple(map(written, paths)), timestamps, last_preserved_timestamp or 0.0)
    write_state(directory, state, latest_filename, storage)

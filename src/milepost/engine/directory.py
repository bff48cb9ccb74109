"""The checkpoints of a directory: the latest good one, waiting for new ones, removing.

Which checkpoints there are is what the state file says; files that it does not name are not looked for. Whether they are
good is found out by reading them: newest first, until one is whole.
"""

from __future__ import annotations

import errno
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

from milepost.bundle import open_bundle
from milepost.bundle.names import index_path, locate
from milepost.engine.leftovers import data_files
from milepost.engine.state_file import PathLike, get_checkpoint_state
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    SkippedCheckpointWarning,
    StorageError,
    warn,
)
from milepost.storage import LocalStorage, Storage
from milepost.storage.paths import plain_path

Verification = Literal["checksums", "files", "none"]
"""How a checkpoint is proved good: by reading every byte, by the sizes of its files, or not beyond its existence."""

_POLL_SECONDS: Final = 1.0
_MOST_REMEMBERED: Final = 64
_LOCAL: Final = LocalStorage()

_Fingerprint = tuple[tuple[str, int, float], ...]


class _Findings:
    """What verifying checkpoints found, so that polling a directory reads each of them once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: weakref.WeakKeyDictionary[Storage, dict[str, tuple[_Fingerprint, MilepostError | None]]]
        self._found = weakref.WeakKeyDictionary()

    def problem(self, storage: Storage, prefix: str) -> MilepostError | None:
        """What is wrong with a checkpoint. Its files are read only if they are not those that were read before."""
        if type(storage) is LocalStorage:
            storage, key = _LOCAL, os.path.abspath(prefix)
        else:
            key = prefix
        fingerprint = self._fingerprint(storage, prefix)
        with self._lock:
            remembered = self._found.setdefault(storage, {}).get(key)
        if remembered is not None and remembered[0] == fingerprint:
            return remembered[1]
        problem = _problem(storage, prefix, "checksums")
        with self._lock:
            found = self._found[storage]
            found.pop(key, None)
            found[key] = fingerprint, problem
            while len(found) > _MOST_REMEMBERED:
                del found[next(iter(found))]
        return problem

    def _fingerprint(self, storage: Storage, prefix: str) -> _Fingerprint:
        paths = [
            index_path(prefix),
            prefix,
            *(path for files in data_files(storage, prefix).values() for path in files),
        ]
        fingerprint = []
        for path in sorted(paths):
            try:
                modified = storage.modified(path)
                file = storage.open(path)
            except (CheckpointNotFoundError, CorruptCheckpointError):
                continue
            fingerprint.append((path, file.size, modified))
            file.close()
        return tuple(fingerprint)


_FINDINGS: Final = _Findings()


def good_checkpoints(
    storage: Storage,
    candidates: Iterable[str],
    verify: Verification,
    skip: Callable[[str, MilepostError], None] | None = None,
) -> Iterator[str]:
    """Passes on the candidates that are whole.

    Args:
        storage: Where they are.
        candidates: Prefixes.
        verify: What counts as proof.
        skip: Is told which candidate is passed over, and why; by default a `SkippedCheckpointWarning` says so.

    Raises:
        StorageError: A file cannot be read for a reason that does not lie in the file.
        UnsupportedError: A checkpoint is whole, but not one that milepost can read.
    """
    if verify not in ("checksums", "files", "none"):
        raise ValueError(f"verify is {verify!r}; it can be 'checksums', 'files' or 'none'")
    for candidate in candidates:
        problem = _FINDINGS.problem(storage, candidate) if verify == "checksums" else None
        problem = problem or (None if verify == "checksums" else _problem(storage, candidate, verify))
        if problem is None:
            yield candidate
        else:
            (skip or _skip)(candidate, problem)


def skipped_message(prefix: str, problem: MilepostError) -> str:
    """Says which checkpoint was passed over, and why."""
    return f"passed over the checkpoint {prefix}: {problem}"


def latest_checkpoint(
    checkpoint_dir: PathLike,
    latest_filename: str | None = None,
    *,
    verify: Verification = "checksums",
    storage: Storage | None = None,
) -> str | None:
    """Finds the newest good checkpoint among those that the state file of a directory names.

    A checkpoint that is damaged or missing is passed over for the next older one, with a warning. What was found out is
    remembered as long as the files do not change, so that asking again does not read them again.

    Args:
        checkpoint_dir: The directory.
        latest_filename: Name of the state file; by default ``checkpoint``.
        verify: ``"checksums"`` reads every byte of the newest checkpoint, ``"files"`` its index and the sizes of its
            files, ``"none"`` only sees whether it exists.
        storage: Where the directory is; by default on this machine.

    Returns:
        The checkpoint's prefix, joined to ``checkpoint_dir`` as it was passed, to be given to ``restore``; None if there
        is no state file, or none of its checkpoints is good.

    Raises:
        StateFileError: The state file is not understood.
        StorageError: A file cannot be read for a reason that does not lie in the file, such as a missing permission.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> latest_checkpoint(directory) is None
        True
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> latest_checkpoint(directory) == path
        True
    """
    storage = storage or _LOCAL
    state = get_checkpoint_state(checkpoint_dir, latest_filename, storage=storage)
    return None if state is None else next(good_checkpoints(storage, state.newest_first(), verify), None)


def checkpoints_iterator(
    checkpoint_dir: PathLike,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    *,
    verify: Verification = "checksums",
    storage: Storage | None = None,
) -> Iterator[str]:
    """Waits for new checkpoints of a directory and yields the latest, again and again.

    If more than one has come since the last, only the newest is yielded. The directory is looked at every second.

    Args:
        checkpoint_dir: The directory.
        min_interval_secs: Least number of seconds between two checkpoints yielded.
        timeout: Most seconds to wait for the next checkpoint; by default any number.
        timeout_fn: Called when that time is over, and after each checkpoint was used. The iteration ends when it returns
            true. Without it, the iteration ends with the first timeout.
        verify: As for `latest_checkpoint`.
        storage: Where the directory is; by default on this machine.

    Raises:
        StateFileError: The state file is not understood.
        StorageError: As for `latest_checkpoint`.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> list(checkpoints_iterator(directory, timeout=0)) == [path]
        True
    """
    storage = storage or _LOCAL
    warned: set[str] = set()

    def skip_once(prefix: str, problem: MilepostError) -> None:
        if (message := skipped_message(prefix, problem)) not in warned:
            warned.add(message)
            _skip(prefix, problem)

    last: str | None = None
    while True:
        new = _wait_for_other_than(last, checkpoint_dir, timeout, verify, storage, skip_once)
        if new is None:
            if timeout_fn is None:
                return
        else:
            started = time.monotonic()
            last = new
            yield new
            time.sleep(max(0.0, started + min_interval_secs - time.monotonic()))
        if timeout_fn is not None and timeout_fn():
            return


def checkpoint_exists(checkpoint_prefix: PathLike, *, storage: Storage | None = None) -> bool:
    """Whether a checkpoint, or anything else of that very path, exists. Nothing is verified.

    Args:
        checkpoint_prefix: The prefix; the path of an index is understood too.
        storage: Where it is; by default on this machine.

    Example:
        >>> checkpoint_exists("there/is/none")
        False
    """
    return _identifying_path(storage or _LOCAL, plain_path(checkpoint_prefix)) is not None


def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[PathLike], *, storage: Storage | None = None) -> list[float]:
    """When checkpoints were written, in whole seconds since the epoch. Those that do not exist are left out.

    Args:
        checkpoint_prefixes: Prefixes.
        storage: Where they are; by default on this machine.

    Example:
        >>> get_checkpoint_mtimes(["there/is/none"])
        []
    """
    storage = storage or _LOCAL
    paths = (_identifying_path(storage, plain_path(prefix)) for prefix in checkpoint_prefixes)
    return [float(math.floor(storage.modified(path))) for path in paths if path is not None]


def remove_checkpoint(
    checkpoint_prefix: PathLike,
    checkpoint_format_version: int = 2,
    meta_graph_suffix: str = "meta",
    *,
    storage: Storage | None = None,
) -> None:
    """Removes the files of a checkpoint, its index before its data; one that does not exist is no error.

    The state file is left alone.

    Args:
        checkpoint_prefix: The prefix, in which ``*``, ``?`` and ``[`` have no meaning.
        checkpoint_format_version: 2, or 1 for the format before TensorFlow 0.12.
        meta_graph_suffix: Ending of the file with TensorFlow 1's graph.
        storage: Where it is; by default on this machine.

    Raises:
        StorageError: A file could not be removed.

    Example:
        >>> import milepost, os, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).write(directory + "/ckpt")
        >>> remove_checkpoint(path)
        >>> os.listdir(directory)
        []
    """
    storage = storage or _LOCAL
    prefix = plain_path(checkpoint_prefix)
    if checkpoint_format_version == 1:
        storage.remove(prefix)
        _remove_v1_shards(storage, prefix)
    else:
        remove_bundle(storage, prefix)
    unsharded = re.sub(r"-[\d?]+-of-\d+$", "", prefix)
    storage.remove(f"{unsharded}.{meta_graph_suffix}")


def _remove_v1_shards(storage: Storage, prefix: str) -> None:
    try:
        found = locate(storage, prefix)
    except CheckpointNotFoundError:
        return
    for path in found.files if found.version == 1 else ():
        storage.remove(path)


def remove_bundle(storage: Storage, prefix: str) -> None:
    """Removes index and data files for good; the index is gone for good before the first data file is.

    Raises:
        StorageError: A file could not be removed.
    """
    directory = os.path.dirname(prefix)
    storage.remove(index_path(prefix))
    data = [path for files in data_files(storage, prefix).values() for path in files]
    if data:
        storage.sync_directory(directory)
    for path in data:
        storage.remove(path)
    if storage.is_directory(directory or "."):
        # Were the data to come back after a crash, nothing would tell any more whose it is.
        storage.sync_directory(directory)


def _problem(storage: Storage, prefix: str, verify: Verification) -> MilepostError | None:
    try:
        if verify == "none":
            if _identifying_path(storage, prefix) is None:
                return CheckpointNotFoundError("there is no such checkpoint", file=prefix)
            return None
        with open_bundle(storage, prefix) as reader:
            if verify == "files":
                reader.check_files()
            else:
                reader.verify()
    except (CheckpointNotFoundError, CorruptCheckpointError) as error:
        return error.with_traceback(None)
    except StorageError as error:
        # A medium that cannot read its blocks back has damaged the file; anything else is not the file's fault.
        if error.errno != errno.EIO:
            raise
        return error.with_traceback(None)
    return None


def _identifying_path(storage: Storage, prefix: str) -> str | None:
    """The file that stands for a checkpoint: the index, or, as for TensorFlow, anything of the prefix's own path."""
    if storage.is_file(index_path(prefix)):
        return index_path(prefix)
    if storage.is_file(prefix) or storage.is_directory(prefix):
        return prefix
    try:
        return locate(storage, prefix).files[0]
    except CheckpointNotFoundError:
        return None


def _wait_for_other_than(
    last: str | None,
    directory: PathLike,
    timeout: float | None,
    verify: Verification,
    storage: Storage,
    skip: Callable[[str, MilepostError], None],
) -> str | None:
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        state = get_checkpoint_state(directory, storage=storage)
        candidates = [] if state is None else state.newest_first()
        if last in candidates:
            # What is older than the last one is not new, even if all newer ones turn out to be damaged.
            candidates = candidates[: candidates.index(last)]
        new = next(good_checkpoints(storage, candidates, verify, skip), None)
        remaining = deadline - time.monotonic()
        if new is not None or remaining <= 0:
            return new
        time.sleep(min(_POLL_SECONDS, remaining))


def _skip(prefix: str, problem: MilepostError) -> None:
    warn(skipped_message(prefix, problem), SkippedCheckpointWarning)

"""Finds the latest good checkpoint of a directory, and waits for new ones.

`milepost.series.series` lists the checkpoints. They are read, newest first, until one is whole. Other processes may save and
remove checkpoints meanwhile, so bad checkpoints are checked a second time.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

from milepost.bundle import data_path, open_whole
from milepost.bundle.format.names import index_path, locate
from milepost.errors import (
    ArgumentError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    SkippedCheckpointWarning,
    StorageError,
    printable,
    warn,
    without_remedy,
)
from milepost.forks import ForkableLock
from milepost.logs import heard
from milepost.series.damage import concerns_file
from milepost.series.leftovers import data_files, visible_shards
from milepost.series.saved_model import checkpoint_of, is_saved_model, versions_in, versions_remedy
from milepost.series.series import known_checkpoints, older_of_series
from milepost.series.state_file import STATE_FILE, CheckpointState
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import unchecked
from milepost.storage.default import DEFAULT_STORAGE, AnyPathStorage, located

Verification = Literal["checksums", "files", "none"]
"""How a checkpoint is verified: by reading every byte, by the sizes of its files, or only by its existence."""

_POLL_SECONDS: Final = 1.0
_MOST_REMEMBERED: Final = 64
_MOST_VERIFIED: Final = 10
"""Checkpoints may be saved and removed faster than their bytes can be read. Attempts after so many compare only sizes."""
_MOST_ATTEMPTS: Final = 1000
_MOST_SHARDS: Final = 1000
"""The most data files that are looked for by name. If there are more, the directory is listed."""

_Fingerprint = tuple[tuple[str, int, float], ...]


class _Findings:
    """The results of verifying checkpoints, so that polling a directory reads each of them once."""

    def __init__(self) -> None:
        self._lock = ForkableLock()
        self._found: weakref.WeakKeyDictionary[Storage, dict[str, tuple[_Fingerprint, MilepostError | None]]]
        self._found = weakref.WeakKeyDictionary()

    def problem(self, storage: Storage, prefix: str) -> MilepostError | None:
        """The error of a damaged checkpoint; None if it is good. Its files are read again only if they have changed
        since the last call."""
        storage = located(storage, prefix)
        remembering, key = unchecked(storage), prefix
        if type(storage) in (LocalStorage, AnyPathStorage):
            remembering, key = DEFAULT_STORAGE, LocalStorage.absolute(storage, prefix)  # type: ignore[arg-type]  # it is one
        fingerprint = self._fingerprint(storage, prefix)
        with self._lock:
            remembered = self._found.setdefault(remembering, {}).get(key)
        if remembered is not None and remembered[0] == fingerprint:
            return remembered[1]
        problem = _problem(storage, prefix, "checksums")
        with self._lock:
            findings = self._found[remembering]
            findings.pop(key, None)
            findings[key] = fingerprint, problem
            while len(findings) > _MOST_REMEMBERED:
                del findings[next(iter(findings))]
        return problem

    def _fingerprint(self, storage: Storage, prefix: str) -> _Fingerprint:
        fingerprint = []
        for path in (index_path(prefix), prefix, *_data_of(storage, prefix)):
            try:
                modified = storage.modified(path)
                file = storage.open(path)
            except (CheckpointNotFoundError, CorruptCheckpointError):
                continue
            fingerprint.append((path, file.size, modified))
            file.close()
        return tuple(fingerprint)


def _data_of(storage: Storage, prefix: str) -> list[str]:
    """The data files of a checkpoint. If its index is damaged, all files that may belong to it."""
    try:
        shards = visible_shards(storage, prefix) or 0
    except CorruptCheckpointError:
        shards = _MOST_SHARDS + 1
    if shards > _MOST_SHARDS:
        return sorted(path for files in data_files(storage, prefix).values() for path in files)
    return [data_path(prefix, shard, shards) for shard in range(shards)]


_FINDINGS: Final = _Findings()


def good_checkpoints(
    storage: Storage,
    candidates: Iterable[str],
    verify: Verification,
    skip: Callable[[str, MilepostError], None] | None = None,
) -> Iterator[str]:
    """Yields the candidates that are whole, and skips the others.

    Args:
        storage: Where they are.
        candidates: The prefixes of checkpoints.
        verify: What is checked: all checksums, the sizes of files, or only that the checkpoint exists.
        skip: Called with each candidate that is skipped and its error; by default, this issues a `SkippedCheckpointWarning`.

    Raises:
        StorageError: A file cannot be read, and the reason is not damage.
        UnsupportedError: A checkpoint is whole, but milepost cannot read it.
    """
    if verify not in ("checksums", "files", "none"):
        raise ArgumentError(
            "there is no such way to verify a checkpoint",
            key="verify",
            expected="'checksums', 'files' or 'none'",
            found=f"{verify!r:.80}",
            remedy="pass 'checksums' to read all data, 'files' for the sizes of files, or 'none'",
        )
    for candidate in candidates:
        problem = _FINDINGS.problem(storage, candidate) if verify == "checksums" else None
        problem = problem or (None if verify == "checksums" else _problem(storage, candidate, verify))
        if problem is None:
            yield candidate
        else:
            (skip or warn_of_skipped)(candidate, problem)


def newest_good(
    storage: Storage,
    read_state: Callable[[], CheckpointState | None],
    verify: Verification,
    skip: Callable[[str, MilepostError], None] | None = None,
    *,
    listed_only: bool = False,
) -> str | None:
    """The newest good checkpoint of a directory. Other processes may save and remove checkpoints meanwhile.

    Args:
        storage: Where the directory is.
        read_state: Returns what the directory lists now.
        verify: What is checked, as for `good_checkpoints`.
        skip: As for `good_checkpoints`.
        listed_only: Whether to leave out older checkpoints of the series that are not listed.

    Returns:
        A checkpoint that existed when this returned, or None if no checkpoint is good.

    Raises:
        StorageError, UnsupportedError: As for `good_checkpoints`.
    """
    for attempt in range(_MOST_ATTEMPTS):
        state = read_state()
        if state is None:
            return None
        problems: dict[str, MilepostError] = {}
        note = problems.__setitem__
        level = verify if attempt < _MOST_VERIFIED or verify == "none" else "files"
        newest = next(good_checkpoints(storage, state.newest_first(), level, note), None)
        if newest is None and not listed_only:
            newest = next(good_checkpoints(storage, older_of_series(storage, state), level, note), None)
        if newest is not None and not problems and identifying_path(storage, newest) is not None:
            return newest
        if read_state() == state and (newest is None or identifying_path(storage, newest) is not None):
            break
    for prefix, problem in problems.items():
        if skip is None:
            warn_of_skipped(prefix, problem, newest)
        else:
            skip(prefix, problem)
    return newest


def skipped_message(prefix: str, problem: MilepostError, instead: str | None = None) -> str:
    """The text of a `SkippedCheckpointWarning`.

    Args:
        prefix: The checkpoint that is skipped.
        problem: The error for it.
        instead: The checkpoint that is used instead, if it is known.
    """
    message = f"the checkpoint {printable(prefix, one_line=True)} was skipped: {without_remedy(problem)}"
    return message if instead is None else f"{message}\n  used instead: {printable(instead, one_line=True)}"


def warn_of_skipped(prefix: str, problem: MilepostError, instead: str | None = None) -> None:
    """Issues a `SkippedCheckpointWarning`, and logs it. Arguments are those of `skipped_message`."""
    warn(skipped_message(prefix, problem, instead), SkippedCheckpointWarning)
    if (log := heard()) is not None:
        log.info("skipped %s: %s", printable(prefix, one_line=True), printable(problem.problem, one_line=True))


def latest_in(
    storage: Storage, directory: str, latest_filename: str | None = None, verify: Verification = "checksums"
) -> str | None:
    """The newest good checkpoint of a directory. Arguments, result and errors are those of `milepost.latest_checkpoint`."""
    newest = newest_good(storage, lambda: known_checkpoints(storage, directory, latest_filename), verify)
    if newest is not None or latest_filename is not None or storage.is_file(os.path.join(directory, STATE_FILE)):
        return newest
    if is_saved_model(storage, directory):
        return next(good_checkpoints(storage, [checkpoint_of(storage, directory)], verify), None)
    if versions := versions_in(storage, directory):
        warn(f"{directory} contains versions of a SavedModel, but no checkpoint: {versions_remedy(versions)}")
    return None


def new_checkpoints(
    storage: Storage,
    directory: str,
    min_interval_secs: float,
    timeout: float | None,
    timeout_fn: Callable[[], bool] | None,
    verify: Verification,
) -> Iterator[str]:
    """Waits for new checkpoints of a directory. Arguments, results and errors are those of `milepost.checkpoints_iterator`."""
    warned: set[str] = set()

    def skip_once(prefix: str, problem: MilepostError) -> None:
        if (message := skipped_message(prefix, problem)) not in warned:
            warned.add(message)
            warn_of_skipped(prefix, problem)

    last: str | None = None
    while True:
        new = _wait_for_other_than(last, directory, timeout, verify, storage, skip_once)
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


def _problem(storage: Storage, prefix: str, verify: Verification) -> MilepostError | None:
    try:
        if verify == "none":
            if identifying_path(storage, prefix) is None:
                return CheckpointNotFoundError("this checkpoint does not exist", file=prefix)
            return None
        with open_whole(storage, prefix) as reader:
            if verify == "files":
                reader.check_files()
            else:
                reader.verify()
    except (CheckpointNotFoundError, CorruptCheckpointError, StorageError) as error:
        if not concerns_file(error):
            raise
        return error.with_traceback(None)
    return None


def identifying_path(storage: Storage, prefix: str) -> str | None:
    """The file that shows that a checkpoint exists: its index or, as in TensorFlow, anything with the path of the prefix."""
    if not prefix:
        return None
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
    directory: str,
    timeout: float | None,
    verify: Verification,
    storage: Storage,
    skip: Callable[[str, MilepostError], None],
) -> str | None:
    def newer() -> CheckpointState | None:
        """The checkpoints that are listed after the last one. Older checkpoints are not new, even if all newer ones are
        damaged."""
        state = known_checkpoints(storage, directory)
        names = [] if state is None else state.newest_first()
        names = names[: names.index(last)] if last in names else names
        return CheckpointState(names[0], tuple(reversed(names))) if names else None

    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        new = newest_good(storage, newer, verify, skip, listed_only=True)
        remaining = deadline - time.monotonic()
        if new is not None or remaining <= 0:
            return new
        time.sleep(min(_POLL_SECONDS, remaining))

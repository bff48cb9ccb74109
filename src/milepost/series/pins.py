"""Pins, which keep checkpoints from being removed, and the notes of removals, which look for pins.

A pin is a separate file. So pinning is a single step that a crash cannot divide, and no process can lose another's pin
by writing an older list.

A process that pins and a process that removes each make their own file first, and then look for the other's file. So at
least one sees the other: the one that removes gives way, and the one that pins waits and then checks that the
checkpoint still exists.

A removal that was asked for by name records the digest of the index. If its process dies, the next manager completes it
(`milepost.series.removal.finish_removals`), unless another checkpoint has the name by then. A removal that fails is withdrawn, unless
the index is gone.

A note is an empty file, and a full device may have no room even for its name. Then the index is removed first. If the checkpoint was
pinned meanwhile, the index is written again. Data that has no index is removed without a note then: a kill leaves what there was, data without
an index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from milepost.bundle import index_path
from milepost.bundle.format.names import INDEX_SUFFIX
from milepost.errors import CheckpointNotFoundError, StorageError, UnsupportedError
from milepost.series.announcement import digest_of
from milepost.series.leftovers import data_files
from milepost.series.notes import NOT_TO_COMPLETE, PIN_SUFFIX, Temporary, pin_path, temporaries
from milepost.series.whole_files import read_whole
from milepost.storage import Storage, WritableFile
from milepost.storage.system_errors import is_full

_PATIENCE: Final = 10.0
"""Seconds to wait for a removal. Without file locks, a dead one also counts as running."""
_PAUSE: Final = 0.005


def is_pinned(storage: Storage, prefix: str) -> bool:
    """Whether a checkpoint is pinned."""
    return storage.is_file(pin_path(prefix))


def pinned_in(storage: Storage, directory: str) -> set[str]:
    """The prefixes of the checkpoints in a directory that are pinned."""
    names = set(storage.list(directory))
    stems = (name.removesuffix(PIN_SUFFIX) for name in names if name.endswith(PIN_SUFFIX))
    return {os.path.join(directory, stem) for stem in stems if stem + INDEX_SUFFIX in names}


def pin(storage: Storage, prefix: str) -> None:
    """Pins a checkpoint. When this returns, the pin survives a power cut. A checkpoint that is pinned stays so.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint, or it was removed meanwhile.
        StorageError: The pin cannot be written.
    """
    directory = os.path.dirname(prefix)
    made = False
    try:
        _must_exist(storage, prefix)
        try:
            storage.create(pin_path(prefix)).close()
            made = True
        except StorageError:
            if not is_pinned(storage, prefix):
                raise
        deadline = time.monotonic() + _PATIENCE
        while any(
            note.final == prefix and storage.in_use(note.path)
            for note in temporaries(storage, directory, of_removals=True)
        ):
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        _must_exist(storage, prefix)
        storage.sync_directory(directory)
    except BaseException:
        if made:
            # the first error is raised; a pin that is left only keeps a checkpoint until unpin()
            with suppress(StorageError):
                storage.remove(pin_path(prefix))
        raise


def unpin(storage: Storage, prefix: str) -> None:
    """Removes the pin of a checkpoint, durably. Does nothing if it is not pinned.

    Raises:
        StorageError: The pin cannot be removed.
    """
    if is_pinned(storage, prefix):
        storage.remove(pin_path(prefix))
        storage.sync_directory(os.path.dirname(prefix))


def pinned_error(prefix: str) -> UnsupportedError:
    """The error for the removal of a checkpoint that is pinned."""
    return UnsupportedError(
        "this checkpoint is pinned, and was not removed",
        file=prefix,
        found=f"its pin, the file {pin_path(prefix)}",
        remedy="unpin it first: call unpin() of its CheckpointManager, or 'milepost unpin' with its path",
    )


@contextmanager
def removal(storage: Storage, prefixes: Sequence[str], *, complete: bool = False) -> Iterator[list[str]]:
    """Records, while the body runs, that checkpoints are being removed.

    Args:
        storage: Where they are.
        prefixes: The checkpoints.
        complete: Whether the next manager completes the removal if the process dies. The notes are durable when the body begins. Without
            it, the next manager does so only for checkpoints whose index is gone. If the body fails, it is always so.

    Yields:
        Those that may be removed: they are not pinned, and no other process is removing them.

    Raises:
        StorageError: A note cannot be made.
    """
    made: list[tuple[WritableFile, str]] = []
    free: list[str] = []
    done = False
    try:
        for prefix in prefixes:
            if is_pinned(storage, prefix):
                continue
            digest = _digest(storage, prefix) if complete else NOT_TO_COMPLETE
            note, index = _make_note(storage, Temporary.removal(prefix, digest))
            if note is not None:
                made.append((note, prefix))
            if is_pinned(storage, prefix):
                if index is not None:
                    _put_back(storage, prefix, index)
                if note is not None:
                    storage.remove(note.path)
            else:
                free.append(prefix)
        if complete:
            for directory in {os.path.dirname(prefix) for prefix in free}:
                storage.sync_directory(directory)
        yield free
        done = True
    finally:
        for note, prefix in made:
            with suppress(StorageError):  # the next manager removes it
                if done or storage.is_file(index_path(prefix)) or not (complete or data_files(storage, prefix)):
                    storage.remove(note.path)
            # the file is empty, so nothing is lost, and its lock ends with the process at the latest
            with suppress(StorageError):
                note.close()


def is_noted(storage: Storage, note: Temporary) -> bool:
    """Whether the checkpoint that the note of a removal names still exists, and was to be removed even after a crash."""
    return note.digest != NOT_TO_COMPLETE and _digest(storage, note.final) == note.digest


def _make_note(storage: Storage, note: Temporary) -> tuple[WritableFile | None, bytes | None]:
    """Makes the note of a removal.

    Returns:
        The open note; None if there is no room for it and there is only data. The bytes of the index, if it was removed to make room.
    """
    try:
        return storage.create(note.path), None
    except StorageError as error:
        index = read_whole(storage, index_path(note.final)) if is_full(error) else None
        if index is None and is_full(error) and data_files(storage, note.final):
            return None, None
        if index is None:
            raise
    storage.remove(index_path(note.final))
    try:
        return storage.create(note.path), index
    except BaseException:
        _put_back(storage, note.final, index)
        raise


def _put_back(storage: Storage, prefix: str, index: bytes) -> None:
    """Writes an index that was removed. Its data is still there."""
    with storage.create(index_path(prefix)) as file:
        file.write(0, [index])
        file.sync()
    storage.sync_directory(os.path.dirname(prefix))


def _digest(storage: Storage, prefix: str) -> str:
    index = read_whole(storage, index_path(prefix))
    return NOT_TO_COMPLETE if index is None else digest_of(index)


def _must_exist(storage: Storage, prefix: str) -> None:
    if not storage.is_file(index_path(prefix)):
        raise CheckpointNotFoundError(
            "there is no such checkpoint to pin: its index is not there, or was just removed",
            file=prefix,
            remedy="pass the prefix of a checkpoint that exists; milepost ls DIR lists them",
        )

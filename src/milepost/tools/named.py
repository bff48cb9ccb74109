"""Opens what a user names: a prefix, a directory, a SavedModel, or a file or directory of another library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from milepost.bundle import BundleReader
from milepost.checkpoint.reader import resolve
from milepost.engine.layouts.steps import Step
from milepost.errors import CheckpointNotFoundError, MilepostError
from milepost.foreign import newest_of_orbax, steps_of_orbax
from milepost.restoring.load import open_any
from milepost.series.directory import Verification
from milepost.series.saved_model import is_of_saved_model
from milepost.storage import Storage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.inventory import inventory_of

_TRIES: Final = 5


def open_named(
    path: str, storage: Storage = DEFAULT_STORAGE, verify: Verification = "none", convert: Sequence[Step] = ()
) -> BundleReader:
    """Opens the checkpoint that a path means. Only its index is read. A directory of steps of Orbax means the newest complete one.

    Args:
        path: As a user has typed it.
        storage: Where it is.
        verify: For a directory of checkpoints, what is checked of the latest one before it is opened; if it fails, the next older one
            is opened, with a warning.
        convert: The steps that lay out its values otherwise.

    Raises:
        CheckpointNotFoundError: There is no checkpoint.
        CorruptCheckpointError: Its index is damaged.
    """
    for attempt in range(_TRIES):
        checkpoint_path = None
        try:
            checkpoint_path = newest_of_orbax(storage, resolve(path, storage, verify))
            return open_any(storage, checkpoint_path, convert)
        except CheckpointNotFoundError as error:
            # another program may have removed the checkpoint, and saved a newer one
            is_itself = checkpoint_path == path and not steps_of_orbax(storage, path)
            if is_itself or not storage.is_directory(path):
                raise
            if attempt == _TRIES - 1:
                if _holds_any(path, storage):
                    known = (
                        f"{error.remedy}; "
                        if (error.remedy or "").startswith(("pass one of", "pass a directory", "pass '"))
                        else ""
                    )
                    error.remedy = (
                        f"{known}'milepost ls {path}' lists the checkpoints and files in it, one of which can be passed"
                    )
                raise
    raise AssertionError("the last attempt returns or raises")


def _holds_any(path: str, storage: Storage) -> bool:
    """Whether `milepost ls` lists anything in a directory."""
    try:
        return bool(inventory_of(path, storage, levels=1).places)
    except MilepostError:
        return False


def kind_of(reader: BundleReader) -> str:
    """What has been opened, in a few words."""
    if not reader.origin.is_checkpoint:
        return f"{'directory' if os.path.isdir(reader.prefix) else 'file'} of {reader.origin.library}"
    return "SavedModel" if is_of_saved_model(DEFAULT_STORAGE, reader.prefix) else "checkpoint"

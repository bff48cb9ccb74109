"""SavedModels: directories that hold a program and the checkpoint of its variables.

::

    <directory>/saved_model.pb, or .pbtxt       the program
    <directory>/variables/variables.index       the checkpoint; absent if the model has no variables
    <name>/<version>/                           SavedModels as TensorFlow Serving and TensorFlow Hub keep them

Source: TensorFlow 2.21, ``python/saved_model/path_helpers.py``, and observed.
"""

from __future__ import annotations

import os
from typing import Final

from milepost.bundle import index_path
from milepost.bundle.format.names import v1_shards
from milepost.errors import CheckpointNotFoundError, UnsupportedError
from milepost.series.state_file import STATE_FILE, state_of
from milepost.storage import Storage

_PROGRAMS: Final = ("saved_model.pb", "saved_model.pbtxt")
_FOLDER: Final = "variables"
_MOST_LISTED: Final = 5


def checkpoint_of(storage: Storage, path: str) -> str:
    """The checkpoint of a SavedModel, given a path of the SavedModel. Any other path is returned unchanged.

    Args:
        storage: Where it is.
        path: The SavedModel's directory, the ``saved_model.pb`` in it, or its ``variables`` directory.

    Raises:
        CheckpointNotFoundError: The SavedModel has no variables, or it is a directory of several versions.
        UnsupportedError: The directory also has checkpoints of a training run, and it is not clear which is meant.
    """
    if storage.is_file(index_path(path)):
        return path
    directory = _directory_of(storage, path)
    if directory is None:
        _refuse_versions(storage, path)
        return path
    prefix = prefix_of_variables(directory)
    if os.path.normpath(path) == os.path.normpath(directory) and _is_listed(storage, directory):
        raise UnsupportedError(
            "this directory is a SavedModel, and its state file names checkpoints of a training run; it is not clear which "
            "of the two is meant",
            file=path,
            remedy=f"pass {prefix!r} for the SavedModel, or what milepost.latest_checkpoint() returns for the training run",
        )
    if not (storage.is_file(index_path(prefix)) or storage.is_file(prefix) or v1_shards(storage, prefix)):
        raise CheckpointNotFoundError(
            "this SavedModel has no variables, so it has no checkpoint",
            file=path,
            expected=index_path(prefix),
            remedy="call tf.saved_model.load() to run it; if it should have variables, its `variables` directory is missing",
        )
    return prefix


def prefix_of_variables(directory: str) -> str:
    """The prefix of the checkpoint of a SavedModel, given its directory.

    Example:
        >>> prefix_of_variables("model")
        'model/variables/variables'
    """
    return os.path.join(directory, _FOLDER, _FOLDER)


def is_saved_model(storage: Storage, directory: str) -> bool:
    """Whether a directory is a SavedModel."""
    return any(storage.is_file(os.path.join(directory, name)) for name in _PROGRAMS)


def is_of_saved_model(storage: Storage, prefix: str) -> bool:
    """Whether a checkpoint belongs to a SavedModel."""
    folder, name = os.path.split(prefix)
    return name == _FOLDER and is_saved_model(storage, os.path.join(folder, ".."))


def versions_in(storage: Storage, directory: str) -> list[str]:
    """The SavedModels in a directory that have a number as their name, as versions of a model do. The newest is last."""
    numbers = sorted((name for name in storage.list(directory) if name.isdecimal() and name.isascii()), key=int)
    return [each for name in numbers if is_saved_model(storage, each := os.path.join(directory, name))]


def versions_remedy(versions: list[str]) -> str:
    """The remedy if a directory of versions was passed."""
    newest = ", ".join(map(repr, versions[: -_MOST_LISTED - 1 : -1]))
    return f"pass the version that you want, the newest first: {newest}" + (
        ", ..." if len(versions) > _MOST_LISTED else ""
    )


def _directory_of(storage: Storage, path: str) -> str | None:
    """The SavedModel to which a path belongs, or None."""
    if is_saved_model(storage, path):
        return path
    parent, name = os.path.split(path.rstrip("/" + os.sep))
    if name in _PROGRAMS and storage.is_file(path):
        return parent
    if name == _FOLDER and storage.is_directory(path) and is_saved_model(storage, parent):
        return parent
    return None


def _is_listed(storage: Storage, directory: str) -> bool:
    """Whether the state file of a directory names a checkpoint."""
    if not storage.is_file(os.path.join(directory, STATE_FILE)):
        return False
    return state_of(storage, directory) is not None


def _refuse_versions(storage: Storage, path: str) -> None:
    versions = versions_in(storage, path) if storage.is_directory(path) else []
    if versions and not _is_listed(storage, path):
        raise CheckpointNotFoundError(
            "this directory contains versions of a SavedModel, and is not a SavedModel itself",
            file=path,
            expected="one SavedModel",
            found=f"{len(versions)} versions" if len(versions) > 1 else "1 version",
            remedy=versions_remedy(versions),
        )

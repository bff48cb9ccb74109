"""Writes the files that were saved with a checkpoint into a directory. Nothing outside of it is written, whatever their names are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from milepost.errors import CheckpointExistsError
from milepost.storage.output_file import replaced
from milepost.storage.paths import ImpossiblePathError, check_local, check_possible, plain_path
from milepost.storage.system_errors import raise_explained


def write_files(files: Mapping[str, bytes], directory: Any) -> None:
    """Writes files below a directory of this machine. Each appears under its name when it is whole.

    Args:
        files: Their bytes, by the names that `milepost.series.files.read_files` has returned.
        directory: The directory. It is made if it does not exist.

    Raises:
        CheckpointExistsError: There is something else under the name of a file, or a symbolic link on the way to it. Nothing was written.
        StorageError: A file cannot be written.
    """
    root = plain_path(directory)
    check_local(root)
    for name, data in files.items():
        _check_free(root, name, data)
    for name, data in files.items():
        path = os.path.join(root, *name.split("/"))
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise_explained(error, "make a directory", os.path.dirname(path))
        if not _check_free(root, name, data):  # where letters of both cases are the same, two names may be one file
            with replaced(path) as file:
                file.write(data)


def _check_free(root: str, name: str, data: bytes) -> bool:
    """Checks that a file can be written. Returns whether it is there already, with the same bytes."""
    parts = name.split("/")
    path = os.path.join(root, *parts)
    try:
        check_possible(path)
    except ImpossiblePathError as error:
        raise error.as_storage_error("write a file of the checkpoint", path) from None
    inside = os.path.join(os.path.realpath(root), *parts)
    if os.path.normcase(os.path.realpath(path)) != os.path.normcase(inside):
        raise CheckpointExistsError(
            "a symbolic link is on the way to this file; no file of the checkpoint was written",
            file=path,
            found=f"a link to {os.path.realpath(path)}",
            remedy="remove the link, or pass another directory",
        )
    if not os.path.lexists(path):
        return False
    if os.path.isfile(path) and os.path.getsize(path) == len(data):
        with open(path, "rb") as file:
            if file.read() == data:
                return True
    raise CheckpointExistsError(
        "a file with other contents exists under the name of a file of the checkpoint, and is not replaced",
        file=path,
        remedy="remove it, or pass another directory",
    )

"""The note that a run is complete, which tells those who start programs again.

::

    note  := name ".complete"                   in the directory of the series with this name
    text  := base " " digest "\\n"               of the checkpoint with which the run is complete

``base`` is the last part of its prefix, and ``digest`` that of its index, as in `milepost.series.announcement`. The note counts only while this is the newest
checkpoint of its series. So a run that is prolonged, or begun anew, is not complete, and nobody has to remove the note.
"""

from __future__ import annotations

import os
from typing import Final

from milepost.bundle import index_path
from milepost.errors import CheckpointNotFoundError
from milepost.series.announcement import digest_of
from milepost.series.commit import commit_file
from milepost.series.series import split_number
from milepost.series.whole_files import read_whole
from milepost.storage import Storage

_SUFFIX: Final = ".complete"


def note_completion(storage: Storage, prefix: str) -> None:
    """Notes that a run is complete with a numbered checkpoint, durably.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        StorageError: The note cannot be written.
    """
    text = _text(storage, prefix)
    if text is None:
        raise CheckpointNotFoundError(
            "there is no such checkpoint, so no run is complete with it",
            file=prefix,
            remedy="save the end of the run first",
        )
    path = _note_path(prefix)
    commit_file(storage, path, text, read_whole(storage, path))


def is_complete_with(storage: Storage, prefix: str) -> bool:
    """Whether a run is complete with its newest checkpoint.

    Args:
        storage: Where it is.
        prefix: The newest checkpoint of its series.

    Raises:
        StorageError: The note, or the index of the checkpoint, cannot be read.
    """
    note = read_whole(storage, _note_path(prefix))
    return note is not None and note == _text(storage, prefix)


def _note_path(prefix: str) -> str:
    split = split_number(prefix)
    return (prefix if split is None else split[0]) + _SUFFIX


def _text(storage: Storage, prefix: str) -> bytes | None:
    index = read_whole(storage, index_path(prefix))
    return None if index is None else f"{os.path.basename(prefix)} {digest_of(index)}\n".encode()

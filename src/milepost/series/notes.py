"""Names of the files beside those of checkpoints: temporary files of saves, notes of what processes do, and pins.

::

    temporary     := final ".milepost-" token ".tmp"                      becomes the file ``final``
    claim         := P ".index.milepost-" token "-of-" NNNNN ".tmp"       claims P.data-?????-of-NNNNN, and becomes the index
    announcement  := P ".milepost-" token "-index-" digest ".tmp"         empty: P is saved and not listed yet
    removal       := P ".milepost-" token "-removal-" digest ".tmp"       empty: P is being removed
    pin           := P ".pinned"                                          empty: P is not removed
    token         := 16 hexadecimal digits, drawn for each save and each removal
    digest        := 16 hexadecimal digits: BLAKE2b, 8 bytes, of the bytes of the index. Zeros in the note of a removal that is
                     not to be completed if its process dies

A claim says that data files of the checkpoint P with this number of shards belong to no checkpoint, unless the visible index
has that number of shards. What the other notes mean is in `milepost.series.announcement` and `milepost.series.pins`. A process keeps its notes
open, so that others see whether it still runs.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple, Self

from milepost.bundle import index_path
from milepost.storage import Storage

PIN_SUFFIX: Final = ".pinned"
NOT_TO_COMPLETE: Final = "0" * 16
"""The digest in the note of a removal that is not to be completed if its process dies."""
_ENDING: Final = ".tmp"
_NAME: Final = re.compile(
    r"(.+)\.milepost-([0-9a-f]{16})(?:-of-(\d{5,})|-(index|removal)-([0-9a-f]{16}))?\.tmp", re.DOTALL
)


def new_token() -> str:
    """A random token for one save or removal.

    Example:
        >>> len(new_token())
        16
    """
    return os.urandom(8).hex()


class Temporary(NamedTuple):
    """A temporary file of a save, or a note.

    Attributes:
        final: The path of the file that it becomes. For a claim, the path of the index; for an announcement or a removal, the prefix.
        token: The token of the save or removal.
        shards: For a claim, the claimed number of shards; otherwise None.
        digest: For an announcement or a removal, the digest of the index; otherwise None.
        is_removal: Whether it is the note of a removal.

    Example:
        >>> Temporary("run/ckpt-1.index", "0123456789abcdef", 2).path
        'run/ckpt-1.index.milepost-0123456789abcdef-of-00002.tmp'
        >>> Temporary.parse("run/checkpoint.milepost-0123456789abcdef.tmp")
        Temporary(final='run/checkpoint', token='0123456789abcdef', shards=None, digest=None, is_removal=False)
    """

    final: str
    token: str
    shards: int | None = None
    digest: str | None = None
    is_removal: bool = False

    @classmethod
    def claim(cls, prefix: str, token: str, shards: int) -> Self:
        """The claim of a save to the data files of ``prefix`` that say ``of-<shards>``."""
        return cls(index_path(prefix), token, shards)

    @classmethod
    def announcement(cls, prefix: str, token: str, digest: str) -> Self:
        """The announcement of a save whose index has this digest."""
        return cls(prefix, token, None, digest)

    @classmethod
    def removal(cls, prefix: str, digest: str) -> Self:
        """The note of a new removal of a checkpoint whose index has this digest."""
        return cls(prefix, new_token(), None, digest, True)

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Parses a path that `path` returned. Returns None if it is not that of a temporary file of milepost."""
        match = _NAME.fullmatch(path)
        if match is None:
            return None
        temporary = cls(match[1], match[2], int(match[3]) if match[3] else None, match[5], match[4] == "removal")
        is_claim = temporary.final.endswith(index_path("")) and temporary.shards
        return temporary if temporary.path == path and (is_claim or temporary.shards is None) else None

    @property
    def path(self) -> str:
        """The path of the temporary file."""
        marks = "" if self.shards is None else f"-of-{self.shards:05}"
        if self.digest is not None:
            marks = f"-{'removal' if self.is_removal else 'index'}-{self.digest}"
        return f"{self.final}.milepost-{self.token}{marks}{_ENDING}"


def temporaries(storage: Storage, directory: str, *, of_removals: bool = False) -> list[Temporary]:
    """The temporary files, claims and announcements of all saves in a directory, running or dead, or the notes of all removals.

    A directory of such a name is the work of others.
    """
    names = [name for name in storage.list(directory) if name.endswith(_ENDING)]
    parsed = (Temporary.parse(os.path.join(directory, name)) for name in names)
    return [
        temporary
        for temporary in parsed
        if temporary is not None and temporary.is_removal is of_removals and not storage.is_directory(temporary.path)
    ]


def claims(storage: Storage, prefix: str) -> list[Temporary]:
    """The claims to data files of a checkpoint, of saves running or dead."""
    index = index_path(prefix)
    return [each for each in temporaries(storage, os.path.dirname(prefix)) if each.shards and each.final == index]


def pin_path(prefix: str) -> str:
    """The path of the pin of a checkpoint.

    Example:
        >>> pin_path("run/ckpt-1")
        'run/ckpt-1.pinned'
    """
    return prefix + PIN_SUFFIX

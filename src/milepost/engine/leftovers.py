"""What a save keeps beside its checkpoint while it runs, and the removal of what crashed saves left.

::

    temporary  =  final ".milepost-" token ".tmp"                       becomes the file `final`
    claim      =  P ".index.milepost-" token "-of-" NNNNN ".tmp"        claims P.data-?????-of-NNNNN
    token      =  16 hexadecimal digits, drawn for each save

A claim says: data files of the checkpoint P with this number of shards belong to nobody, unless the visible index has
that number of shards. A save claims the names it will write, with the file that will become its index, and the names
of the data that it replaces. So after a crash at any point the claims that are left tell exactly what to remove.

Invariants:

- A file that is not named as above is removed only if a claim of a dead save names it and the visible index does not.
- A save is alive while any file with its token is in use; it keeps all of them open until it has ended.
- Who wants to write or remove claimed names makes a claim first and looks for those of others then. Of two that come at
  the same time at least one sees the other, and gives way.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, Self

from milepost.bundle import index_path, parse_data_path
from milepost.bundle.messages import BundleHeader
from milepost.bundle.writer import HEADER_KEY
from milepost.coding.protobuf import parse
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.storage import Storage
from milepost.table import TableReader

_NAME: Final = re.compile(r"(.+)\.milepost-([0-9a-f]{16})(?:-of-(\d{5,}))?\.tmp", re.DOTALL)


def new_token() -> str:
    """A token that no other save has.

    Example:
        >>> len(new_token())
        16
    """
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Temporary:
    """A file that a save keeps while it runs.

    Attributes:
        final: Path of the file that it becomes, or, for a claim, of the index.
        token: The save's.
        shards: For a claim, the number of shards claimed; otherwise None.

    Example:
        >>> Temporary("run/ckpt-1.index", "0123456789abcdef", 2).path
        'run/ckpt-1.index.milepost-0123456789abcdef-of-00002.tmp'
        >>> Temporary.parse("run/checkpoint.milepost-0123456789abcdef.tmp")
        Temporary(final='run/checkpoint', token='0123456789abcdef', shards=None)
    """

    final: str
    token: str
    shards: int | None = None

    @classmethod
    def claim(cls, prefix: str, token: str, shards: int) -> Self:
        """The claim of a save to the data files of ``prefix`` that say ``of-<shards>``."""
        return cls(index_path(prefix), token, shards)

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Undoes `path`; None if the path is not one of a temporary file of milepost's."""
        match = _NAME.fullmatch(path)
        if match is None:
            return None
        found = cls(match[1], match[2], int(match[3]) if match[3] else None)
        is_claim = found.final.endswith(index_path("")) and found.shards
        return found if found.path == path and (is_claim or found.shards is None) else None

    @property
    def path(self) -> str:
        """The file's own path."""
        claimed = "" if self.shards is None else f"-of-{self.shards:05}"
        return f"{self.final}.milepost-{self.token}{claimed}.tmp"


def temporaries(storage: Storage, directory: str) -> list[Temporary]:
    """The temporary files of all saves, running or dead, in a directory."""
    found = (Temporary.parse(os.path.join(directory, name)) for name in storage.list(directory))
    return [each for each in found if each is not None]


def claims(storage: Storage, prefix: str) -> list[Temporary]:
    """The claims to data files of a checkpoint, of saves running or dead."""
    index = index_path(prefix)
    return [each for each in temporaries(storage, os.path.dirname(prefix)) if each.shards and each.final == index]


def data_files(storage: Storage, prefix: str) -> dict[int, list[str]]:
    """The data files named after a checkpoint, whether they belong to it or not, by the number of shards they state."""
    directory, name = os.path.split(prefix)
    found: dict[int, list[str]] = defaultdict(list)
    for other in storage.list(directory):
        data = parse_data_path(other)
        if data is not None and data.prefix == name:
            found[data.shards].append(os.path.join(directory, other))
    return dict(found)


def visible_shards(storage: Storage, prefix: str) -> int | None:
    """The number of shards that the visible index of a checkpoint states, or None if there is no index.

    Raises:
        CorruptCheckpointError: There is an index, but it does not tell.
    """
    if not storage.is_file(index_path(prefix)):
        return None
    try:
        file = storage.open(index_path(prefix))
        try:
            header = parse(BundleHeader, TableReader(file).get(HEADER_KEY) or b"", what="the header of the index")
        finally:
            file.close()
    except CheckpointNotFoundError:
        return None
    except StorageError as error:
        raise CorruptCheckpointError("the index cannot be read", file=index_path(prefix)) from error
    if header.num_shards < 1:
        raise CorruptCheckpointError("the index states no number of shards", file=index_path(prefix))
    return int(header.num_shards)


def sweep_leftovers(storage: Storage, directory: str, *, prefix: str | None = None) -> list[str]:
    """Removes what crashed saves left in a directory: temporary files, and data that never got its index or lost it.

    Files of saves that are still running are left alone, in this process or another, and so is everything that milepost
    did not name or claim: data without an index, for example, may be a copy under way.

    Args:
        storage: Where the directory is.
        directory: The directory; one that does not exist has no leftovers.
        prefix: Sweep only what belongs to this checkpoint of the directory.

    Returns:
        The paths of the files that were removed.

    Raises:
        StorageError: A file could not be removed. Sweeping again goes on from there.

    Example:
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> storage.create("run/ckpt-1.data-00000-of-00001.milepost-0123456789abcdef.tmp").close()
        >>> sweep_leftovers(storage, "run")
        ['run/ckpt-1.data-00000-of-00001.milepost-0123456789abcdef.tmp']
    """
    saves: dict[str, list[Temporary]] = defaultdict(list)
    for file in temporaries(storage, directory):
        saves[file.token].append(file)
    removed: list[str] = []
    for files in saves.values():
        if prefix is not None and index_path(prefix) not in (file.final for file in files):
            continue
        if any(storage.in_use(file.path) for file in files):
            continue
        for file in files:
            if file.shards is None:
                storage.remove(file.path)
                removed.append(file.path)
        for file in files:
            if file.shards is not None and _sweep_claimed(storage, file, removed):
                storage.remove(file.path)
                removed.append(file.path)
    return removed


def _sweep_claimed(storage: Storage, dead: Temporary, removed: list[str]) -> bool:
    """Removes the data that a dead save claimed; returns whether the claim has become void."""
    prefix, shards = dead.final.removesuffix(index_path("")), dead.shards or 0
    if shards not in data_files(storage, prefix):
        return True
    own = Temporary.claim(prefix, new_token(), shards)
    with storage.create(own.path):
        try:
            others = [each for each in claims(storage, prefix) if each not in (own, dead) and each.shards == shards]
            if any(storage.in_use(other.path) for other in others) or not storage.is_file(dead.path):
                return False
            # The index that replaced this data may have been renamed by a process that died before making it durable.
            storage.sync_directory(os.path.dirname(prefix))
            if visible_shards(storage, prefix) == shards:
                return True
            for path in data_files(storage, prefix).get(shards, []):
                storage.remove(path)
                removed.append(path)
            # Were the claim gone after a crash, and the data not, nothing would tell what the data is.
            storage.sync_directory(os.path.dirname(prefix))
            return True
        except CorruptCheckpointError:
            return False
        finally:
            storage.remove(own.path)

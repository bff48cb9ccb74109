"""How the files of a save get their names: by renames on a disk, and by conditional writes in a store.

`milepost.series.commit` has the steps of a save. Some of them differ between the two::

                  on a disk (`ByRename`)                        in a store (`ByCondition`)
    names         P.data-SSSSS-of-NNNNN, NNNNN files            the same, NNNNN drawn from 10000 to 99999
    1. claim      becomes the index                             stays empty, and is removed after step 7
    2. write      to temporary names                            to the final names, which no other save has
    4. data       rename                                        nothing
    5. index      rename the claim                              write it, if it is the one that was there at step 1
    6. durable    sync the directory                            read the claim: nobody may have taken the save for dead

A save to a store has names of its own without a rename, because TensorFlow opens only the data files that entries name: the number of files in
their names may be any larger number (`milepost.bundle.index`).

What step 6 in a store is for is said in `milepost.series.liveness`.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Collection, Sequence
from typing import Protocol

from milepost.bundle import index_path
from milepost.errors import AfterCommitError, CorruptCheckpointError, StorageError
from milepost.series.leftovers import visible_shards
from milepost.series.liveness import REPLACED, is_confirmed
from milepost.series.notes import Temporary
from milepost.series.whole_files import read_whole, rename
from milepost.storage import ConditionalStorage, Storage, WritableFile
from milepost.storage.checked import conditional

_LEAST, _MOST = 10_000, 99_999
"""The numbers of data files that a save to a store draws from. Five digits, for which TensorFlow's own deletions look."""


class Publication(Protocol):
    """The steps of one save that depend on the storage."""

    def number(self, wanted: int, taken: Collection[int]) -> int:
        """The number of data files in their names.

        Args:
            wanted: How many data files there are.
            taken: The numbers that may be those of other data.
        """
        ...

    def files(self, wanted: int, number: int) -> int:
        """How many data files are written, if ``number`` is in their names."""
        ...

    def working_path(self, temporary: Temporary) -> str:
        """Where a data file is written."""
        ...

    def join(self) -> None:
        """Notes what the save replaces, when it holds its claim. Errors are those of `read_whole`."""
        ...

    def prepare(self, claim: WritableFile, index: bytes) -> None:
        """Ends step 2, when the bytes of the index are known."""
        ...

    def claim_replaced(self, claim: Temporary, opened: list[WritableFile]) -> None:
        """Claims data that the save replaces. If the claim is to stay open until the save ends, it is added to a list."""
        ...

    def name_data(self, data: Sequence[Temporary], moved: list[str]) -> None:
        """Takes step 4, and adds the paths of what has its final name to a list."""
        ...

    def commit(self, claim: Temporary, index: bytes) -> None:
        """Takes step 5.

        Raises:
            StorageError: `is_committed` says whether the index is visible.
        """
        ...

    def is_committed(self, claim: Temporary, index: bytes) -> bool:
        """Whether the index of the save is visible. An error, if this cannot be told."""
        ...

    def confirm(self, claim: Temporary, index: bytes) -> bool:
        """Takes step 6. Returns False if the save was taken for dead, and so has taken back its index.

        Raises:
            StorageError: The index is visible, and may be lost.
        """
        ...

    def end(self, claim: Temporary) -> None:
        """Ends the save after step 7. An error does no harm, because a sweep does what is left to do."""
        ...


def publication_of(storage: Storage, prefix: str) -> Publication:
    """How a checkpoint gets its names."""
    store = conditional(storage, prefix)
    return ByRename(storage, prefix) if store is None else ByCondition(store, prefix)


class ByRename:
    """Files get their names by renames.

    Args:
        storage: Where they are.
        prefix: The checkpoint.
    """

    def __init__(self, storage: Storage, prefix: str) -> None:
        self._storage = storage
        self._prefix = prefix
        self._directory = os.path.dirname(prefix)

    def number(self, wanted: int, taken: Collection[int]) -> int:
        return next(count for count in range(wanted, wanted + len(taken) + 1) if count not in taken)

    def files(self, wanted: int, number: int) -> int:
        return number

    def working_path(self, temporary: Temporary) -> str:
        return temporary.path

    def join(self) -> None:
        """Notes nothing: whatever has the name of the index is replaced."""

    def prepare(self, claim: WritableFile, index: bytes) -> None:
        claim.write(0, [index])
        claim.sync()

    def claim_replaced(self, claim: Temporary, opened: list[WritableFile]) -> None:
        opened.append(
            self._storage.create(claim.path)
        )  # in one line, so that Ctrl-C leaves no file that is not removed

    def name_data(self, data: Sequence[Temporary], moved: list[str]) -> None:
        for each in data:
            moved.append(each.final)
            rename(self._storage, each.path, each.final)
        self._storage.sync_directory(self._directory)

    def commit(self, claim: Temporary, index: bytes) -> None:
        rename(self._storage, claim.path, index_path(self._prefix))

    def is_committed(self, claim: Temporary, index: bytes) -> bool:
        return is_published(self._storage, claim)

    def confirm(self, claim: Temporary, index: bytes) -> bool:
        self._storage.sync_directory(self._directory)
        return True

    def end(self, claim: Temporary) -> None:
        """Does nothing: the claim has become the index."""


class ByCondition:
    """Files get their names when they are written; arguments are those of `ByRename`."""

    def __init__(self, storage: ConditionalStorage, prefix: str) -> None:
        self._storage = storage
        self._index = index_path(prefix)
        self._present: bytes | None = None
        self._data: list[str] = []

    def number(self, wanted: int, taken: Collection[int]) -> int:
        while (number := random.randint(max(wanted, _LEAST), _MOST)) in taken:
            pass
        return number

    def files(self, wanted: int, number: int) -> int:
        return wanted

    def working_path(self, temporary: Temporary) -> str:
        return temporary.final

    def join(self) -> None:
        self._present = read_whole(self._storage, self._index)

    def prepare(self, claim: WritableFile, index: bytes) -> None:
        """Does nothing: the claim stays empty, and the index is written in step 5."""

    def claim_replaced(self, claim: Temporary, opened: list[WritableFile]) -> None:
        self._storage.replace(
            claim.path, REPLACED, None
        )  # in one step, so that it is never taken for the claim of new data

    def name_data(self, data: Sequence[Temporary], moved: list[str]) -> None:
        self._data = [each.final for each in data]

    def commit(self, claim: Temporary, index: bytes) -> None:
        self._storage.replace(self._index, index, self._present)

    def is_committed(self, claim: Temporary, index: bytes) -> bool:
        return read_whole(self._storage, self._index) == index

    def confirm(self, claim: Temporary, index: bytes) -> bool:
        try:
            if is_confirmed(self._storage, claim, self._data):
                return True
        except StorageError as error:
            raise AfterCommitError(
                f"the checkpoint is saved, but the store does not tell whether another process has taken this save for dead: {error.problem}",
                errno=error.errno,
                file=self._index,
                remedy="verify the checkpoint; if it is damaged, save again",
            ) from error
        if self._present is not None:
            try:
                self._storage.replace(self._index, self._present, index)
            except StorageError as error:
                if error.errno != errno.EEXIST:  # which says that another save has replaced it already
                    raise
        elif read_whole(self._storage, self._index) == index:
            self._storage.remove(self._index)
        return False

    def end(self, claim: Temporary) -> None:
        self._storage.remove(claim.path)


def is_published(storage: Storage, claim: Temporary) -> bool:
    """Whether a save to a disk has reached its commit point, by the file that was to become its index.

    No other save can have given the visible index this number of data files while the claim stood.

    Raises:
        StorageError: The index cannot be read, and the reason is not damage.
    """
    if storage.is_file(claim.path):
        return False
    prefix = claim.final.removesuffix(index_path(""))
    try:
        return visible_shards(storage, prefix) == claim.shards
    except CorruptCheckpointError:
        return True  # because nothing shows the contrary

"""Incremental saves: data files of an earlier checkpoint that hold unchanged tensors become data files of the new one.

::

    earlier checkpoint    e.data-00000-of-00001    base (unchanged), adapters
                               |  hard link
    new checkpoint        n.data-00001-of-00002    base, adapters as they were, which no entry of the new index names
                          n.data-00000-of-00002    adapters as they are now, object graph

Each checkpoint has a name for every file that its index needs. So it is complete by itself, and deleting it removes
only names.

Invariants:

- A tensor is taken over only if its stored bytes were read and are those to be saved (`milepost.bundle.unchanged`).
- A data file is linked only if the new checkpoint uses at least half of it. So the files of a checkpoint take at most twice the bytes of
  its tensors. Unchanged tensors of other files are written into a file apart from those that have changed, which the next save
  can link.
- After the links are made, the index of the earlier checkpoint still exists. So the linked files are those that were
  compared.
- If a link cannot be made, no link remains, and everything is written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from milepost.bundle import BundleWriter, Entry, index_path
from milepost.bundle.format.slices import covers
from milepost.bundle.reader import IndexedReader
from milepost.bundle.unchanged import Candidate, find_unchanged
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite
from milepost.errors import CheckpointNotFoundError, MilepostError, warn
from milepost.series.series import numbered, split_number
from milepost.storage import Storage
from milepost.tensor import TensorSlice

_MOST_LINKED: Final = 32
"""The most data files that are linked, so that a checkpoint has few files after many saves. The tensors of the other
files are written again."""
_WORTH_A_FILE: Final = 64 << 10
"""The least bytes of unchanged tensors that get a file of their own when they are written again."""
_TRIED: Final = 3
"""How many earlier checkpoints are opened at most, if the newest are damaged."""


class Linker(Protocol):
    """Links existing data files under new names: `milepost.series.commit.BundleCommit`, or that of other processes."""

    def link(self, shard: int, source: str) -> None:
        """Links an existing file as a data file; errors are those of `milepost.storage.LinkingStorage.link`."""
        ...

    def unlink(self, shard: int) -> None:
        """Undoes `link`, which may have failed."""
        ...


class Division:
    """The data files that a save writes, and those that it takes over from an earlier checkpoint.

    Args:
        writes: All tensors, each with the number of its data file: those that are written come first, then those to be linked.
        written: The number of data files that are written.
        stored: The places of the tensors in files to be linked, by their positions in ``writes``.
        sources: The data files to be linked, in the order of their new numbers.
        earlier: The earlier checkpoint, which is open, if there are any.

    Attributes:
        writes: As given.
        written: As given.
        files: The number of all data files.
    """

    def __init__(
        self,
        writes: Sequence[PlannedWrite],
        written: int,
        stored: Mapping[int, Entry] = MappingProxyType({}),
        sources: Sequence[str] = (),
        earlier: IndexedReader | None = None,
    ) -> None:
        self.writes = writes
        self.written = written
        self.files = written + len(sources)
        self._stored = stored
        self._sources = sources
        self._earlier = earlier
        self._is_linked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._earlier is not None:
            self._earlier.close()

    def take_over(self, linker: Linker, first: int = 0) -> None:
        """Links all data files, or none if one cannot be linked. The earlier checkpoint is closed then.

        Args:
            linker: Links them.
            first: The number of the first data file of this process.

        Raises:
            StorageError: A link cannot be removed again.
        """
        if self._earlier is None:
            return
        tried = []
        try:
            for shard, source in enumerate(self._sources, start=first + self.written):
                tried.append(shard)
                linker.link(shard, source)
            # another process may have replaced or removed the checkpoint since it was compared
            self._is_linked = self._earlier.is_visible()
        except MilepostError as error:
            _tell(error)
        finally:
            self._earlier.close()  # Windows neither replaces nor removes open files
        if not self._is_linked:
            for shard in tried:
                linker.unlink(shard)

    def add_to(self, writer: BundleWriter, arrays: Sequence[Any], first: int = 0) -> None:
        """Adds all tensors to a writer, after `take_over`.

        Args:
            writer: The writer.
            arrays: The array, or the part of one, of each write.
            first: The number of the first data file of this process.

        Raises:
            UnsupportedError: A tensor cannot be stored.
        """
        linked = self._stored if self._is_linked else {}
        for number, (write, array) in enumerate(zip(self.writes, arrays, strict=True)):
            shard = first + write.shard
            if number in linked:
                writer.add_stored(write.key, write.shape, write.box, linked[number], shard=shard)
            elif write.box is None:
                writer.add(write.key, array, write.dtype, shard=shard)
            else:
                writer.add_slice(write.key, write.shape, write.box, array, write.dtype, shard=shard)


def divide(
    storage: Storage,
    prefix: str,
    writes: Sequence[PlannedWrite],
    files: int,
    arrays: Sequence[Any],
    options: CheckpointOptions,
    *,
    graph: bool = True,
    compared: Callable[[int], object] = int,
) -> Division:
    """Compares the values to be saved with an earlier checkpoint: the one that is replaced, or the newest of its
    series.

    Args:
        storage: Where both are.
        prefix: The new checkpoint.
        writes: The writes of a save that writes everything, each with the number of its data file.
        files: The number of data files of such a save.
        arrays: The array, or the part of one, of each write.
        options: Whether the save is incremental, and where tensors begin.
        graph: Whether the object graph goes into the last data file that is written. Then this file holds the changed
            tensors.
        compared: A function that is called with the number of bytes after each chunk that is the same, from several threads.

    Returns:
        The division, to be used in a ``with`` statement. Without an earlier checkpoint, or if too little of it is unchanged, everything
        is written.
    """
    for earlier in _earlier_checkpoints(storage, prefix) if options.incremental else ():
        try:
            reader = IndexedReader(storage, earlier, index_path(earlier))
        except MilepostError:
            continue  # it is damaged, or was removed meanwhile
        division = None
        try:
            unchanged = _unchanged(reader, writes, arrays, options.data_alignment, compared)
            division = _divided(reader, writes, unchanged, graph=graph)
            break
        except MilepostError:
            continue  # a data file is missing, or the index is damaged
        finally:
            if division is None:
                reader.close()
    else:
        division = None
    return division or Division(writes, files)


def _earlier_checkpoints(storage: Storage, prefix: str) -> Iterator[str]:
    """The checkpoint with the same prefix and those of the same series, the one that was saved last first."""
    split = split_number(prefix)
    others = [prefix] if split is None else numbered(storage, split[0])
    saved = []
    for index, other in enumerate(others):
        with suppress(CheckpointNotFoundError):  # there is none, or another process has just removed it
            saved.append((storage.modified(index_path(other)), index))
    for _, index in sorted(saved, reverse=True)[:_TRIED]:
        yield others[index]


def _unchanged(
    reader: IndexedReader,
    writes: Sequence[PlannedWrite],
    arrays: Sequence[Any],
    alignment: int,
    compared: Callable[[int], object],
) -> dict[int, Candidate]:
    """The tensors of numbers whose bytes the earlier checkpoint holds, by their positions."""
    candidates: dict[int, Candidate] = {}
    for number, (write, array) in enumerate(zip(writes, arrays, strict=True)):
        if array.dtype != write.dtype.numpy or write.dtype.is_bytes:
            continue
        location = reader.stored(write.key, _box(write))
        if location is None:
            continue
        file, entry = location
        if entry.size and (entry.dtype, entry.shape) == (write.dtype, array.shape) and entry.offset % alignment == 0:
            candidates[number] = Candidate(array, file, entry)
    _leave_out_overlaps(candidates)
    are_same = find_unchanged(list(candidates.values()), compared)
    return {number: each for (number, each), is_same in zip(candidates.items(), are_same, strict=True) if is_same}


def _box(write: PlannedWrite) -> TensorSlice | None:
    """The box of a write as the index has it, in which a box that covers the tensor is the whole tensor."""
    return None if write.box is None or covers(write.box, write.shape) else write.box


def _leave_out_overlaps(candidates: dict[int, Candidate]) -> None:
    """Leaves out tensors that claim the same bytes as others, as they may in a damaged index."""
    ends: Counter[int] = Counter()
    for number, (_, _, entry) in sorted(candidates.items(), key=lambda item: item[1].entry.offset):
        if entry.offset < ends[entry.shard]:
            del candidates[number]
        else:
            ends[entry.shard] = entry.offset + entry.size


def _divided(
    reader: IndexedReader, writes: Sequence[PlannedWrite], unchanged: Mapping[int, Candidate], *, graph: bool
) -> Division | None:
    """Divides the tensors of a save: those to link, unchanged ones to write again, and changed ones. None if all have
    changed."""
    links = _worth_linking(unchanged)
    stored = {number: each.entry for number, each in unchanged.items() if each.entry.shard in links}
    again = unchanged.keys() - stored.keys()
    if sum(unchanged[number].entry.size for number in again) < _WORTH_A_FILE:
        again = set()
    if not stored and not again:
        return None
    # files of tensors that have changed come last
    new = {number: (number not in again, write.shard) for number, write in enumerate(writes) if number not in stored}
    files = sorted({*new.values()})
    if graph and not (files and files[-1][0]):
        files.append((True, 0))
    linked = {shard: number for number, shard in enumerate(links, start=len(files))}
    placed = [
        write._replace(shard=linked[stored[number].shard] if number in stored else files.index(new[number]))
        for number, write in enumerate(writes)
    ]
    return Division(placed, len(files), stored, [*map(reader.shard_path, links)], reader)


def _worth_linking(unchanged: Mapping[int, Candidate]) -> list[int]:
    """The data files of the earlier checkpoint of which at least half is used, in the order of their numbers."""
    used: Counter[int] = Counter()
    sizes: dict[int, int] = {}
    for _, file, entry in unchanged.values():
        used[entry.shard] += entry.size
        sizes[entry.shard] = file.size
    worth = [shard for shard, size in used.most_common() if 2 * size >= sizes[shard]]
    return sorted(worth[:_MOST_LINKED])


def _tell(error: MilepostError) -> None:
    directory = os.path.dirname(str(error.file or "")) or "."
    code = getattr(error, "errno", None)
    reason = os.strerror(code) if code else error.problem  # without the name of the file, so that it is told only once
    warn(
        f"an incremental save to {directory} writes everything, because the data files of the previous checkpoint cannot be linked: "
        f"{reason}; save to a file system with hard links, or without CheckpointOptions(incremental=True)"
    )

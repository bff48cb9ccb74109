"""Reads many tensors for a restore: first verifies all of them, then delivers them.

No destination changes before every byte was verified, unless the fetch is told that it may. Small tensors are kept in memory in
between, up to a limit. Large tensors are read twice, because memory for all of them would cost more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.bundle.counting import Count, counter
from milepost.bundle.format.entry import Entry
from milepost.bundle.interface import BundleReader
from milepost.bundle.memory import Array, bytes_of, new_array
from milepost.bundle.parallel import THREADS, for_each
from milepost.bundle.problems import wrong_checksum
from milepost.bundle.transfer import WORTH_THREADS, Span, read_spans
from milepost.coding.crc32c import crc32c, mask, masked_each, unmask
from milepost.errors import MilepostError, MismatchError
from milepost.storage import ReadableFile
from milepost.tensor import TensorSlice, TensorSpec

STAGING: Final = 64 << 20
"""Bytes that a fetch may keep between `verify` and `deliver`."""

_SMALL: Final = 64 << 10
"""The most bytes of a tensor that is read together with its neighbours."""
_TINY: Final = 1 << 10
"""The most bytes of a tensor that are hashed faster as a copy than as a view."""
_JOINED: Final = 2 << 20
"""The most bytes that are read together."""
_GAP: Final = 4 << 10
"""The most bytes between two tensors that are faster to read than to skip."""
_TOGETHER: Final = 512
"""Small tensors of which the checksums are computed together. With more of them, their parts take more memory, and hardly less time."""
_FEW: Final = 16
"""Tensors of which the checksums are compared faster one by one."""
_PYTHON_BOUND: Final = 8 << 10
"""The average size of a tensor in bytes below which several threads are not faster."""


@dataclass(slots=True)
class _Batch:
    """Small tensors that are read together.

    Attributes:
        file: Their file.
        start: The first byte.
        stop: The end of the last tensor.
        tickets: The tensors.
        has_destinations: Whether any of them is read into a destination.
        has_new: Whether a new array is made for any of them.
        staged: Whether their bytes are kept until they are delivered.
        data: The bytes that are kept.
    """

    file: ReadableFile
    start: int
    stop: int
    tickets: list[int]
    has_destinations: bool = False
    has_new: bool = False
    staged: bool = False
    data: bytes | None = None


class Fetch:
    """Reads many tensors of a checkpoint: all of them, or none if one is damaged.

    Args:
        reader: The checkpoint.
        staging: Bytes that may be kept in memory between `verify` and `deliver`.
        once: Whether `verify` reads large tensors directly into their destinations and checks them at the same time.
            Then no large tensor is read twice. If `verify` fails, destinations may have changed.

    Example:
        >>> def restore(reader: BundleReader, weights: Array) -> Array:
        ...     fetch = Fetch(reader)
        ...     fetch.add("weights", weights)
        ...     step = fetch.add("step", None)
        ...     fetch.verify()
        ...     return fetch.deliver()[step]
    """

    def __init__(self, reader: BundleReader, *, staging: int = STAGING, once: bool = False) -> None:
        self._reader = reader
        self._staging = staging
        self._once = once
        # By ticket. There are several lists instead of one of tuples, because the garbage collector visits every tuple.
        self._keys: list[str] = []
        self._destinations: list[Array | None] = []
        self._entries: list[Any] = []
        """The entry of each, or None where the tensor is not one run of bytes."""
        self._boxes: dict[int, TensorSlice] = {}
        # The arrays to deliver from memory, the small tensors to deliver from memory or read again, and the large ones to read again.
        self._kept: dict[int, Array] = {}
        self._groups: list[_Batch] = []
        self._spans: list[tuple[Span, Entry]] = []
        self._others: list[int] = []
        self._verified = False
        self._count: Count | None = None

    def add(self, key: str, destination: Array | None, box: TensorSlice | None = None) -> int:
        """Asks for a tensor.

        Args:
            key: The tensor.
            destination: A contiguous array of its type and shape, or None for a new array.
            box: The part to read.

        Returns:
            Its position in the result of `deliver`.
        """
        ticket = len(self._keys)
        self._keys.append(key)
        self._destinations.append(destination)
        if box is not None:
            self._boxes[ticket] = box
        return ticket

    def verify(self) -> None:
        """Reads and checks all requested tensors. No destination changes, unless each tensor is to be read once.

        Raises:
            MilepostError: As for `BundleReader`. Nothing can be delivered.
            MismatchError: A destination does not fit.
        """
        if not self._keys:
            self._verified = True
            return
        for earlier in (self._kept, self._groups, self._spans, self._others):
            earlier.clear()
        self._count = counter()
        near: defaultdict[ReadableFile, list[int]] = defaultdict(list)
        spans: list[tuple[Span, Entry]] = []
        others: list[int] = []
        extent = self._reader.extent
        boxes = self._boxes
        entries = self._entries = [None] * len(self._keys)
        for ticket, key in enumerate(self._keys):
            file_and_entry = extent(key) if ticket not in boxes else None
            # an empty tensor need not be read, but may have a shape that no array can have
            if file_and_entry is None or not file_and_entry[1].size:
                others.append(ticket)
                continue
            file, entry = file_and_entry
            entries[ticket] = entry
            destination = self._destinations[ticket]
            if destination is not None:
                _check_destination(key, destination, entry.dtype.numpy, entry.shape)
            if entry.size <= _SMALL:
                near[file].append(ticket)
            elif destination is None:
                fresh = self._kept[ticket] = new_array(entry.dtype, entry.shape)
                spans.append((Span(key, file, entry.offset, entry.size, bytes_of(fresh)), entry))
            elif self._once:
                spans.append((Span(key, file, entry.offset, entry.size, bytes_of(destination)), entry))
            else:
                spans.append((Span(key, file, entry.offset, entry.size), entry))
                self._spans.append((Span(key, file, entry.offset, entry.size, bytes_of(destination)), entry))
        groups: list[_Batch] = []
        for file in list(near):
            groups += self._grouped(file, near.pop(file))
        if len(groups) == 1:
            self._verify_group(groups[0])
        else:
            for_each(self._verify_group, groups, threads=THREADS if _is_worth_threads(groups) else 1)
        self._groups = [] if self._once else [group for group in groups if group.has_destinations]
        if spans:
            _read(spans)
        for ticket in others:
            self._verify_other(ticket)
        self._verified = True

    def deliver(self) -> list[Array]:
        """Fills all destinations, after `verify`.

        Returns:
            The destination or the new array of each tensor, in the order of the calls of `add`.

        Raises:
            StorageError: A file can no longer be read. Some destinations may have changed.
            CorruptCheckpointError: A file has changed since it was verified. Some destinations may have changed.
        """
        if not self._verified:
            raise ValueError("verify() comes before deliver()")
        self._verified = False
        self._count = counter()
        kept, self._kept = self._kept, {}
        delivered = []
        for ticket, destination in enumerate(self._destinations):
            if destination is None:
                delivered.append(kept[ticket])
            else:
                delivered.append(destination)
                if ticket in kept:
                    destination[...] = kept[ticket]
        for group in self._groups:
            data, group.data = group.data, None
            for ticket, array in self._arrays(group, self._read_group(group) if data is None else data):
                delivered[ticket][...] = array
        if self._spans:
            _read(self._spans)
        for ticket in self._others:
            self._reader.read_into(self._keys[ticket], delivered[ticket], self._boxes.get(ticket))
        return delivered

    def _grouped(self, file: ReadableFile, tickets: list[int]) -> list[_Batch]:
        """Groups small neighbouring tensors of a file, and reserves memory for groups that are kept.

        Args:
            file: The file.
            tickets: The tensors.
        """
        groups: list[_Batch] = []
        entries = self._entries
        last: _Batch | None = None
        tickets.sort(key=lambda ticket: entries[ticket].offset)
        for ticket in tickets:
            _, _, _, start, size, _, _ = entries[ticket]
            stop = start + size
            if last is None or start > last.stop + _GAP or start - last.start >= _JOINED:
                last = _Batch(file, start, stop, [ticket])
                groups.append(last)
            else:
                last.stop = max(last.stop, stop)
                last.tickets.append(ticket)
            if self._destinations[ticket] is None:
                last.has_new = True
            else:
                last.has_destinations = True
        for group in groups:
            if group.has_destinations and not self._once:
                size = group.stop - group.start
                group.staged = size <= self._staging
                self._staging -= size if group.staged else 0
        return groups

    def _verify_group(self, group: _Batch) -> None:
        data = self._read_group(group)
        if group.has_new or self._once:
            for ticket, array in self._arrays(group, data):
                destination = self._destinations[ticket]
                if destination is None:
                    # a copy, because a view would keep its neighbours in memory
                    self._kept[ticket] = array.copy()
                elif self._once:
                    destination[...] = array
        if group.staged and not self._once:
            group.data = data

    def _arrays(self, group: _Batch, data: bytes) -> Iterator[tuple[int, Array]]:
        """The tensors of a group as views of its bytes."""
        for ticket in group.tickets:
            dtype, shape, _, offset, _, _, _ = self._entries[ticket]
            yield ticket, np.ndarray(shape, dtype.numpy, data, offset - group.start)

    def _read_group(self, group: _Batch) -> bytes:
        """The verified bytes of a group."""
        file = group.file
        try:
            data = file.read(group.start, group.stop - group.start)
        except MilepostError as error:
            raise error.with_context(key=self._keys[group.tickets[0]]) from None
        if self._count is not None:
            self._count(group.stop - group.start)
        start, view = group.start, memoryview(data)
        if len(group.tickets) <= _FEW:
            for ticket in group.tickets:
                _, _, _, offset, size, expected, _ = self._entries[ticket]
                crc = mask(crc32c((data if size <= _TINY else view)[offset - start : offset - start + size]))
                if crc != expected:
                    raise wrong_checksum(self._keys[ticket], file.path, offset, expected, unmask(crc))
            return data
        for first in range(0, len(group.tickets), _TOGETHER):
            tickets = group.tickets[first : first + _TOGETHER]
            entries = [self._entries[ticket] for ticket in tickets]
            parts = [
                (data if size <= _TINY else view)[offset - start : offset - start + size]
                for _, _, _, offset, size, _, _ in entries
            ]
            crcs = masked_each(parts).tolist()
            for ticket, crc, (_, _, _, offset, _, expected, _) in zip(tickets, crcs, entries, strict=True):
                if crc != expected:
                    raise wrong_checksum(self._keys[ticket], file.path, offset, expected, unmask(crc))
        return data

    def _verify_other(self, ticket: int) -> None:
        key, destination, box = self._keys[ticket], self._destinations[ticket], self._boxes.get(ticket)
        if destination is None:
            self._kept[ticket] = self._reader.read(key, box)
            return
        dtype, shape = self._reader.entry(key)[:2]
        if box is not None:
            shape = box.shape(shape)
        _check_destination(key, destination, dtype.numpy, shape)
        size = TensorSpec(dtype, shape).nbytes
        if self._once:
            self._reader.check(key, box)  # a file of another library is not verified while it is read
            self._reader.read_into(key, destination, box)
        elif size <= self._staging:
            self._staging -= size
            self._kept[ticket] = self._reader.read(key, box)
        else:
            self._reader.check(key, box)
            self._others.append(ticket)


def _is_worth_threads(groups: Sequence[_Batch]) -> bool:
    if len(groups) < 2:
        return False
    size = sum(group.stop - group.start for group in groups)
    return size >= max(WORTH_THREADS, _PYTHON_BOUND * sum(len(group.tickets) for group in groups))


def check_all(reader: BundleReader, wanted: Iterable[tuple[str, TensorSlice | None]]) -> None:
    """Checks that tensors, or boxes of them, can be read, without the memory for them. Errors are those of `BundleReader.read`.

    Args:
        reader: The checkpoint.
        wanted: The key of each, and its box; None for the whole tensor.
    """
    spans = []
    for key, box in wanted:
        runs = reader.runs(key, box)
        if runs is None:
            reader.check(key, box)
        else:
            spans += [(Span(key, file, entry.offset, entry.size), entry) for file, entry in runs]
    if spans:
        _read(spans)


def _read(spans: Sequence[tuple[Span, Entry]]) -> None:
    read_spans([span for span, _ in spans])
    for span, entry in spans:
        if mask(span.crc) != entry.crc:
            raise wrong_checksum(span.key, span.file.path, span.offset, entry.crc, span.crc)


def _check_destination(key: str, destination: Array, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
    if destination.shape != shape or not destination.flags.carray or destination.dtype != dtype:
        raise MismatchError(
            "a tensor cannot be read into this array",
            key=key,
            expected=f"a writable, contiguous array of {dtype} and shape {shape}",
            found=f"{destination.dtype}, shape {destination.shape}, flags {str(destination.flags).split()}",
        )

"""Reads the tensors of V2 checkpoints.

The index is a table (see `writer`), data files are described in `layout`. Files of TensorFlow may differ from
milepost's: tensors are not aligned, there may be gaps between them, blocks of the index may be compressed, and the machine that
wrote them may be big-endian. Source: TensorFlow 2.21,
``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``.
"""

from __future__ import annotations

import math
import sys
from typing import Final, NamedTuple, Self

import numpy as np

from milepost.bundle.catalogue import Catalogue
from milepost.bundle.counting import counter
from milepost.bundle.format import strings, variants
from milepost.bundle.format.entry import Entry
from milepost.bundle.format.slices import Box, index_of, overlaps, ranges
from milepost.bundle.index import Index
from milepost.bundle.interface import CHECKPOINT
from milepost.bundle.mapping import map_bytes
from milepost.bundle.memory import Array, bytes_of, new_array, object_array, scatter, swap_bytes
from milepost.bundle.open_files import OpenFiles
from milepost.bundle.placement import check_apart, check_placement
from milepost.bundle.problems import wrong_checksum
from milepost.bundle.transfer import CHUNK, Span, read_chunks, read_spans
from milepost.coding.crc32c import crc32c, mask
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.storage import ReadableFile, Storage
from milepost.storage.default import anchored
from milepost.storage.local_files import LocalFile
from milepost.tensor import TensorSlice, TensorSpec
from milepost.tensor.dtype import VARIANT

_UNCHECKED: Final = 64 << 20
"""The bytes that are read before it is asked whether entries claim the same ones."""


class _StoredRun(NamedTuple):
    """A stored run of bytes that holds a part of a requested box.

    Attributes:
        entry: The entry of the run.
        file: Its file.
        source: The part in the run; None for the whole run.
        target: The part in the requested box; None for the whole box.
    """

    entry: Entry
    file: ReadableFile
    source: Box | None = None
    target: Box | None = None


class IndexedReader:
    """An open V2 checkpoint. `BundleReader` describes its methods."""

    origin: Final = CHECKPOINT

    def __init__(self, storage: Storage, prefix: str, index: str) -> None:
        self.prefix = prefix
        # data files may be opened later, when the current directory is another
        storage = anchored(storage, prefix)
        self._index = Index(storage, prefix, index)
        self._files = OpenFiles(storage, prefix, self._index)
        self._swapped = self._index.byteorder != sys.byteorder
        self._wanted = 0
        self._unchecked: float = _UNCHECKED

    @property
    def shard_paths(self) -> list[str]:
        return self._files.paths

    def shard_path(self, shard: int) -> str:
        """The path of the data file with a number."""
        return self._files.path_of(shard)

    def keys(self) -> list[str]:
        return self._index.keys()

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def spec(self, key: str) -> TensorSpec:
        return self._index.entry(key).spec

    def entry(self, key: str) -> Entry:
        return self._index.entry(key)

    def catalogue(self) -> Catalogue:
        catalogue = self._index.catalogue()._replace(files=self._files)
        return catalogue._replace(is_run=np.zeros(len(catalogue.keys), bool)) if self._swapped else catalogue

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        entry = self._index.decoded.get(key) or self._index.entry(key)
        if entry.slices or self._swapped or entry.dtype.is_bytes:
            return None
        file = self._files.file_of(key, entry)
        self._wanted += entry.size
        if self._wanted > self._unchecked:
            self._check_apart()
        return file, entry

    def stored(self, key: str, box: TensorSlice | None = None) -> tuple[ReadableFile, Entry] | None:
        """Where a tensor, or a piece of one that was saved as this box, lies as it would in memory. None if it does not.

        Errors are those of `entry`, but for a key that does not exist.
        """
        entry = self._index.find(key, box)
        if entry is None or entry.slices or self._swapped or entry.dtype.is_bytes:
            return None
        return self._files.file_of(key, entry), entry

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        entry = self._index.entry(key)
        return (
            None if entry.dtype.is_bytes else [(piece.file, piece.entry) for piece in self._pieces(key, entry, box)[1]]
        )

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        entry = self._index.entry(key)
        if entry.dtype.is_bytes and entry.shape == () and not entry.slices and box is None:
            # one string, such as the object graph
            return self._read_objects(key, _StoredRun(entry, self._files.file_of(key, entry)))
        shape, pieces = self._pieces(key, entry, box)
        for piece in pieces:
            self._wanted += piece.entry.size
        if self._wanted > self._unchecked:
            self._check_apart()
        try:
            array = new_array(entry.dtype, shape)
        except MilepostError as error:
            raise error.with_context(key=key, file=self._index.file.path) from None
        self._fill(key, pieces, array)
        return array

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        _, pieces = self._pieces(key, self._index.entry(key), box)
        self._fill(key, pieces, destination)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        _, pieces = self._pieces(key, self._index.entry(key), box)
        self._check(key, pieces)

    def map(self, key: str) -> Array:
        extent = self.extent(key)
        if extent is None or not isinstance(extent[0], LocalFile) or extent[1].offset % extent[1].dtype.itemsize:
            raise UnsupportedError(
                "this tensor is not stored as it would be in memory",
                key=key,
                file=self.prefix,
                expected="numbers in one aligned run of bytes in a local file, of this machine's byte order",
                remedy="use read() instead of map()",
            )
        file, entry = extent[0], extent[1]
        data = map_bytes(file, entry.offset, entry.size)
        crc = 0
        count = counter()
        for start in range(0, entry.size, CHUNK):
            chunk = data[start : start + CHUNK]
            crc = crc32c(chunk, crc)
            if count is not None:
                count(len(chunk))
        _compare(key, file, entry, crc)
        return data.view(entry.dtype.numpy).reshape(entry.shape)

    def verify(self) -> tuple[int, int]:
        self._index.verify()
        self.check_files()
        spans = []
        entries = []
        for key, entry in self._index.entries():
            if entry.slices:
                # the pieces have their own keys, and are read by themselves
                self._pieces(key, entry, None)
            elif entry.dtype.is_bytes:
                self._check(key, [_StoredRun(entry, self._files.file_of(key, entry))])
            else:
                spans.append(Span(key, self._files.file_of(key, entry), entry.offset, entry.size))
                entries.append(entry)
        read_spans(spans)
        for span, entry in zip(spans, entries, strict=True):
            _compare(span.key, span.file, entry, span.crc)
        count = len(self.keys())
        return count, count

    def check_files(self) -> None:
        check_placement(self._index, self._files)

    def hold(self) -> None:
        self._files.hold()

    def is_replaced(self) -> bool:
        return self._index.is_visible() is False

    def is_visible(self) -> bool:
        """Whether the index that was opened still exists and was not replaced.

        Raises:
            StorageError: This cannot be told.
        """
        return self._index.is_visible() is True

    def release(self, *, for_good: bool) -> None:
        self._files.release()
        if for_good:
            self._index.forget_blocks()

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_apart(self) -> None:
        """Checks once that no two entries claim the same bytes, if more were read than the files have. The entries of a forged index would take
        any memory otherwise.

        Raises:
            CorruptCheckpointError: Two entries claim the same bytes.
        """
        self._unchecked = float(self._files.opened_bytes())
        if self._wanted > self._unchecked:
            check_apart(self._index, self._index.with_pieces(), self._files)
            self._unchecked = math.inf

    def _pieces(self, key: str, entry: Entry, box: TensorSlice | None) -> tuple[tuple[int, ...], list[_StoredRun]]:
        """The shape of a box, and its pieces. A damaged file cannot make the result larger than the files."""
        if not entry.slices:
            file = self._files.file_of(key, entry)
            if box is None:
                return entry.shape, [_StoredRun(entry, file)]
            wanted = ranges(box, entry.shape)
            return _lengths(wanted), [_StoredRun(entry, file, wanted)]
        box = box or TensorSlice.whole(len(entry.shape))
        try:
            overlapping = overlaps(entry.slices, box, entry.shape)
        except CorruptCheckpointError as error:
            raise error.with_context(key=key, file=self._index.file.path) from None
        pieces = []
        for overlap in overlapping:
            stored = self._index.piece(key, entry, overlap.piece)
            pieces.append(_StoredRun(stored, self._files.file_of(key, stored), overlap.source, overlap.target))
        return _lengths(ranges(box, entry.shape)), pieces

    def _fill(self, key: str, pieces: list[_StoredRun], array: Array) -> None:
        whole = []
        for piece in pieces:
            target = array if piece.target is None else array[index_of(piece.target)]
            if piece.entry.dtype.is_bytes:
                objects = self._read_objects(key, piece)
                target[...] = objects if piece.source is None else objects[index_of(piece.source)]
            elif target.shape == piece.entry.shape and target.flags.c_contiguous:
                span = Span(key, piece.file, piece.entry.offset, piece.entry.size, bytes_of(target))
                whole.append((span, piece))
            else:
                self._stream(key, piece, target)
        read_spans([span for span, _ in whole])
        for span, piece in whole:
            _compare(key, piece.file, piece.entry, span.crc)
            if self._swapped and span.target is not None:
                swap_bytes(span.target, piece.entry.dtype)

    def _check(self, key: str, pieces: list[_StoredRun]) -> None:
        spans = []
        for piece in pieces:
            if piece.entry.dtype.is_bytes:
                self._read_objects(key, piece)
            else:
                spans.append(Span(key, piece.file, piece.entry.offset, piece.entry.size))
        read_spans(spans)
        for span, piece in zip(spans, [piece for piece in pieces if not piece.entry.dtype.is_bytes], strict=True):
            _compare(key, piece.file, piece.entry, span.crc)

    def _stream(self, key: str, piece: _StoredRun, target: Array) -> None:
        """Reads a run of bytes whose elements go to separate positions of the target."""
        entry = piece.entry
        origin = [start for start, _ in piece.source] if piece.source else [0] * len(entry.shape)
        crc = position = 0
        try:
            for chunk in read_chunks(piece.file, entry.offset, entry.size):
                crc = crc32c(chunk, crc)
                if self._swapped:
                    swap_bytes(chunk, entry.dtype)
                elements = chunk.view(entry.dtype.numpy)
                scatter(target, origin, entry.shape, position, elements)
                position += len(elements)
        except MilepostError as error:
            raise error.with_context(key=key) from None
        _compare(key, piece.file, entry, crc)

    def _read_objects(self, key: str, piece: _StoredRun) -> Array:
        entry, file = piece.entry, piece.file
        try:
            data = file.read(entry.offset, entry.size)
            count = math.prod(entry.shape)
            if entry.dtype is not VARIANT:
                elements, crc = strings.decode(data, count, self._index.byteorder)
            elif self._swapped:
                raise UnsupportedError("variants from a machine of the other byte order cannot be read")
            else:
                elements, crc = variants.decode(data, count)
            array = object_array(elements, entry.shape)
        except CorruptCheckpointError as error:
            error.problem = f"the tensor at byte {entry.offset} is damaged: {error.problem}"
            raise error.with_context(key=key, file=file.path) from None
        except MilepostError as error:
            raise error.with_context(key=key, file=file.path) from None
        _compare(key, file, entry, crc)
        return array


def _compare(key: str, file: ReadableFile, entry: Entry, crc: int) -> None:
    if mask(crc) != entry.crc:
        raise wrong_checksum(key, file.path, entry.offset, entry.crc, crc)


def _lengths(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)

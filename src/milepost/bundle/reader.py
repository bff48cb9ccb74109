"""Reads V2 checkpoints.

The index is a table (see `writer`), data files are described in `layout`. Files of TensorFlow may differ from
milepost's: tensors are not aligned, there may be gaps between them, blocks of the index may be compressed, and the machine that
wrote them may be big-endian. Source: TensorFlow 2.21,
``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np

from milepost.bundle import strings, variants
from milepost.bundle.columns import Columns, decode_all
from milepost.bundle.counting import counter
from milepost.bundle.entry import Entry, decode, decode_spec
from milepost.bundle.held import FileInMemory, have_same_bytes
from milepost.bundle.mapping import map_bytes
from milepost.bundle.memory import Array, bytes_of, new_array, object_array, scatter, swap_bytes
from milepost.bundle.messages import BundleHeader
from milepost.bundle.names import data_path
from milepost.bundle.problems import no_such_key, wrong_checksum
from milepost.bundle.slices import KEY_START, Box, index_of, overlaps, parse_slice_key, ranges, slice_key
from milepost.bundle.transfer import CHUNK, Span, read_chunks, read_spans
from milepost.bundle.writer import HEADER_KEY, VERSION
from milepost.coding.crc32c import crc32c, mask
from milepost.coding.protobuf import parse
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.forks import ForkableLock
from milepost.storage import ReadableFile, Storage, anchored
from milepost.storage.local import LocalFile
from milepost.table import TableReader
from milepost.tensor import TensorSlice, TensorSpec
from milepost.tensor.dtype import VARIANT

_LITTLE, _BIG = 0, 1
_MOST_SHARDS: Final = 99_999
"""The largest number of shards that the five digits in the names of data files allow."""
_NOWHERE: Final = KEY_START
"""A key that no index has. It is not the key of the header, which is empty, and is too short for that of a slice."""
_FEW: Final = 64
"""The number of keys that are looked up one by one before the whole index is read."""


_Decoded = TypeVar("_Decoded")


class _Piece(NamedTuple):
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
    """An open V2 checkpoint."""

    def __init__(self, storage: Storage, prefix: str, index: str) -> None:
        self.prefix = prefix
        # data files may be opened later, when the current directory is another
        self._storage = anchored(storage, prefix)
        self._index = self._storage.open(index)
        self._lock = ForkableLock()
        self._files: dict[int, ReadableFile] = {}
        self._closed = False
        self._released = False
        self._entries: dict[str, Entry] = {}
        self._rows: dict[bytes, bytes] | None = None
        self._columns: tuple[list[str], Columns] | None = None
        self._are_decoded = False
        self._lookups = 0
        try:
            self._table = TableReader(self._index)
            self._shards, self._byteorder = self._read_header()
            self._swapped = self._byteorder != sys.byteorder
            self.shard_paths = [data_path(prefix, shard, self._shards) for shard in range(self._shards)]
        except MilepostError as error:
            self._index.close()
            raise error.with_context(file=index) from None

    def keys(self) -> list[str]:
        return [self._decode_key(name) for name in self._all_rows() if not name.startswith(KEY_START) and name]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self._entries or self._row(_encode_key(key)) is not None)

    def spec(self, key: str) -> TensorSpec:
        entry = self._entries.get(key)
        return entry.spec if entry is not None else self._decoded(key, self._row_of(key), decode_spec)

    def entry(self, key: str) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            row = self._row_of(key)
            if self._rows is not None and not self._are_decoded:
                self._decode_usual()
                entry = self._entries.get(key)
        if entry is None:
            try:
                entry = self._entries[key] = decode(row)
            except MilepostError as error:
                raise error.with_context(key=key, file=self._index.path) from None
        return entry

    def _decode_usual(self) -> None:
        """Decodes all entries of the usual form, which takes less time than one after the other."""
        self._are_decoded = True
        with suppress(CorruptCheckpointError):  # a malformed key concerns nobody who reads another
            keys, columns = self.columns()
            if len(columns.others) == len(keys):
                return
            specs, fields = columns.specs, (columns.shard, columns.offset, columns.size, columns.crc)
            places = zip(columns.spec.tolist(), *(field.tolist() for field in fields), strict=True)
            found = {
                key: Entry(specs[spec].dtype, specs[spec].shape, shard, offset, size, crc)
                for key, (spec, shard, offset, size, crc) in zip(keys, places, strict=True)
            }
            for place in columns.others:
                del found[keys[place]]
            self._entries = found | self._entries
            self._columns = None  # they take as much memory again

    @property
    def is_swapped(self) -> bool:
        """Whether a machine of the other byte order has written the values."""
        return self._swapped

    def columns(self) -> tuple[list[str], Columns]:
        """The keys of all tensors, sorted, and their entries in columns. The columns do not say much of tensors in pieces.

        Raises:
            CorruptCheckpointError: A key is malformed.
        """
        if self._columns is None:
            rows = {name: row for name, row in self._all_rows().items() if name and not name.startswith(KEY_START)}
            self._columns = [self._decode_key(name) for name in rows], decode_all([*rows.values()])
        return self._columns

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        entry = self._entries.get(key) or self.entry(key)
        if entry.slices or self._swapped or entry.dtype.is_bytes:
            return None
        return self._file_of(key, entry), entry

    def stored(self, key: str, box: TensorSlice | None = None) -> tuple[ReadableFile, Entry] | None:
        """Where a tensor, or a piece of one that was saved as this box, lies as it would in memory. None if it does not.

        Errors are those of `entry`, but for a key that does not exist.
        """
        name = _encode_key(key)
        row = self._row(name if box is None else slice_key(name, box))
        entry = None if row is None else self._decoded(key, row, decode)
        if entry is None or entry.slices or self._swapped or entry.dtype.is_bytes:
            return None
        return self._file_of(key, entry), entry

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        entry = self.entry(key)
        if entry.dtype.is_bytes and entry.shape == () and not entry.slices and box is None:
            # one string, such as the object graph
            return self._read_objects(key, _Piece(entry, self._file_of(key, entry)))
        shape, pieces = self._pieces(key, entry, box)
        try:
            array = new_array(entry.dtype, shape)
        except MilepostError as error:
            raise error.with_context(key=key, file=self._index.path) from None
        self._fill(key, pieces, array)
        return array

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        _, pieces = self._pieces(key, self.entry(key), box)
        self._fill(key, pieces, destination)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        _, pieces = self._pieces(key, self.entry(key), box)
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

    def verify(self) -> None:
        # through a new table, which has no blocks in memory yet
        TableReader(self._index).verify()
        self.check_files()
        spans = []
        entries = []
        for key, entry in self._all_entries():
            if entry.slices:
                # the pieces have their own keys, and are read by themselves
                self._pieces(key, entry, None)
            elif entry.dtype.is_bytes:
                self._check(key, [_Piece(entry, self._file_of(key, entry))])
            else:
                spans.append(Span(key, self._file_of(key, entry), entry.offset, entry.size))
                entries.append(entry)
        read_spans(spans)
        for span, entry in zip(spans, entries, strict=True):
            _compare(span.key, span.file, entry, span.crc)

    def check_files(self) -> None:
        self.hold()
        if not self._are_places_right():
            self._check_places()

    def _are_places_right(self) -> bool:
        """Whether all entries are found at once to lie in their files, and none in another."""
        rows = [value for row, value in self._all_rows().items() if row]
        columns = decode_all(rows)
        try:
            if any(not decode(rows[place]).slices for place in columns.others):
                return False
        except MilepostError:
            return False
        is_decoded = np.ones(len(rows), bool)
        is_decoded[columns.others] = False
        shard, offset, size = (field[is_decoded] for field in (columns.shard, columns.offset, columns.size))
        if not len(shard):
            return True
        sizes = np.array([self._file(number, None).size for number in range(self._shards)], np.int64)
        if int(shard.max()) >= self._shards or bool((offset + size > sizes[shard]).any()):
            return False
        has_bytes = size > 0
        shard, offset, size = (field[has_bytes] for field in (shard, offset, size))
        order = np.lexsort((offset, shard))
        shard, offset, end = shard[order], offset[order], (offset + size)[order]
        return not bool(((shard[:-1] == shard[1:]) & (offset[1:] < end[:-1])).any())

    def _check_places(self) -> None:
        """Checks one entry after the other, and raises an error that says what is wrong."""
        placed: list[tuple[int, int, int, str]] = []
        for key, entry in self._all_entries():
            if not entry.slices:
                self._file_of(key, entry)
                if entry.size:
                    placed.append((entry.shard, entry.offset, entry.size, key))
        placed.sort()
        for (shard, offset, size, key), (following, start, _, other) in itertools.pairwise(placed):
            if shard == following and start < offset + size:
                raise CorruptCheckpointError(
                    "two tensors claim the same bytes",
                    key=other,
                    file=self.shard_paths[shard],
                    expected=f"a start at {offset + size} or later, where {key!r} ends",
                    found=start,
                )

    def hold(self) -> None:
        for shard in range(self._shards):
            self._file(shard, None)

    def is_replaced(self) -> bool:
        return self._is_visible() is False

    def is_visible(self) -> bool:
        """Whether the index that was opened still exists and was not replaced.

        Raises:
            StorageError: This cannot be told.
        """
        return self._is_visible() is True

    def _is_visible(self) -> bool | None:
        """Whether the visible index is the one that was opened; None if there is none."""
        try:
            present = self._storage.open(self._index.path)
        except CheckpointNotFoundError:
            return None
        try:
            return have_same_bytes(self._index, present)
        finally:
            present.close()

    def release(self, *, for_good: bool) -> None:
        with self._lock:
            if self._closed:
                return
            if not self._released:
                index = self._index
                try:
                    content = FileInMemory(index.path, index.read(0, index.size))
                except MilepostError:
                    return  # then the file stays open; a garbage collection may have closed it before
                self._index = self._table.file = content
                index.close()
            self._released = True
            self._close_data()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._index.close()
            self._close_data()

    def _close_data(self) -> None:
        # The parsed entries take more memory than the index, and are seldom needed again.
        self._entries.clear()
        self._rows, self._columns, self._are_decoded, self._lookups = None, None, False, 0
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read_header(self) -> tuple[int, strings.Order]:
        """The number of shards, and the byte order of the machine that wrote them."""
        row = self._table.get(HEADER_KEY)
        if row is None:
            raise CorruptCheckpointError("the index has no header, so it is not that of a checkpoint")
        header = parse(BundleHeader, row, what="the header of the index")
        if not 1 <= header.num_shards <= _MOST_SHARDS:
            raise CorruptCheckpointError(
                "an impossible number of data files", expected=f"1 to {_MOST_SHARDS}", found=header.num_shards
            )
        if header.endianness not in (_LITTLE, _BIG):
            raise CorruptCheckpointError("an unknown byte order", expected="0 or 1", found=header.endianness)
        version = header.version
        if version.min_consumer > VERSION or VERSION in version.bad_consumers:
            raise UnsupportedError(
                "the checkpoint says that readers of this version must not read it",
                expected=f"a reader of version {version.min_consumer} or later, none of {list(version.bad_consumers)}",
                found=f"version {VERSION}",
                remedy="update milepost",
            )
        return header.num_shards, "big" if header.endianness == _BIG else "little"

    def _row_of(self, key: str) -> bytes:
        name = _encode_key(key)
        row = self._row(name) if self._rows is None else self._rows.get(name)
        if row is None:
            raise no_such_key(key, self.keys(), self.prefix)
        return row

    def _row(self, key: bytes) -> bytes | None:
        if self._rows is None:
            self._lookups += 1
            if self._lookups <= _FEW:
                return self._table.get(key)
            return self._all_rows().get(key)
        return self._rows.get(key)

    def _all_rows(self) -> dict[bytes, bytes]:
        if self._rows is None:
            self._rows = dict(self._table.items())
        return self._rows

    def _all_entries(self) -> Iterator[tuple[str, Entry]]:
        """All entries, also those of pieces, with the name of their tensor."""
        for row, value in self._all_rows().items():
            if row.startswith(KEY_START):
                try:
                    name, box = parse_slice_key(row)
                except MilepostError as error:
                    raise error.with_context(file=self._index.path) from None
                key = self._decode_key(name)
                yield f"{key} [{box}]", self._decoded(key, value, decode)
            elif row:
                yield (key := self._decode_key(row)), self._decoded(key, value, decode)

    def _decode_key(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise CorruptCheckpointError(
                "a key that is not UTF-8", key=name, file=self._index.path, remedy="the other keys can be read by name"
            ) from None

    def _decoded(self, key: str, row: bytes, decoder: Callable[[bytes], _Decoded]) -> _Decoded:
        try:
            return decoder(row)
        except MilepostError as error:
            raise error.with_context(key=key, file=self._index.path) from None

    def _file(self, shard: int, key: str | None) -> ReadableFile:
        file = self._files.get(shard)
        if file is None:
            with self._lock:
                if self._closed:
                    raise ValueError(f"the reader of {self.prefix} is closed")
                file = self._files.get(shard)
                if file is None:
                    file = self._files[shard] = self._open_shard(shard, key)
        return file

    def _open_shard(self, shard: int, key: str | None) -> ReadableFile:
        try:
            file = self._storage.open(self.shard_paths[shard])
        except CheckpointNotFoundError:
            if self.is_replaced():
                raise _replaced(self.prefix, key) from None
            raise CheckpointNotFoundError(
                "a data file of the checkpoint is missing",
                key=key,
                file=self.shard_paths[shard],
                remedy="keep the files of a checkpoint as long as values in it are deferred"
                if self._released
                else "copy all files of a checkpoint, or use another one",
            ) from None
        except MilepostError as error:
            raise error.with_context(key=key) from None
        if self._released and self.is_replaced():
            file.close()
            raise _replaced(self.prefix, key)
        return file

    def _file_of(self, key: str, entry: Entry) -> ReadableFile:
        if entry.shard >= self._shards:
            raise CorruptCheckpointError(
                "an entry for a data file that does not exist",
                key=key,
                file=self._index.path,
                expected=f"a shard less than {self._shards}",
                found=entry.shard,
            )
        file = self._file(entry.shard, key)
        if entry.offset + entry.size > file.size:
            raise CorruptCheckpointError(
                f"the tensor at byte {entry.offset} reaches beyond the end of its data file, which is truncated or belongs "
                "to another checkpoint",
                key=key,
                file=file.path,
                expected=f"at least {entry.offset + entry.size} bytes",
                found=f"{file.size} bytes",
            )
        return file

    def _pieces(self, key: str, entry: Entry, box: TensorSlice | None) -> tuple[tuple[int, ...], list[_Piece]]:
        """The shape of a box, and its pieces. A damaged file cannot make the result larger than the files."""
        if not entry.slices:
            file = self._file_of(key, entry)
            if box is None:
                return entry.shape, [_Piece(entry, file)]
            wanted = ranges(box, entry.shape)
            return _lengths(wanted), [_Piece(entry, file, wanted)]
        box = box or TensorSlice.whole(len(entry.shape))
        try:
            found = overlaps(entry.slices, box, entry.shape)
        except CorruptCheckpointError as error:
            raise error.with_context(key=key, file=self._index.path) from None
        pieces = []
        for overlap in found:
            stored = self._piece_entry(key, entry, overlap.piece)
            pieces.append(_Piece(stored, self._file_of(key, stored), overlap.source, overlap.target))
        return _lengths(ranges(box, entry.shape)), pieces

    def _piece_entry(self, key: str, entry: Entry, box: TensorSlice) -> Entry:
        row = self._row(slice_key(key.encode(), box))
        stored = None if row is None else self._decoded(key, row, decode)
        expected = TensorSpec(entry.dtype, box.shape(entry.shape))
        if stored is None or stored.slices or TensorSpec(stored.dtype, stored.shape) != expected:
            raise CorruptCheckpointError(
                f"the slice {box} of the tensor is not as its entry says",
                key=key,
                file=self._index.path,
                expected=expected,
                found="nothing" if stored is None else TensorSpec(stored.dtype, stored.shape),
            )
        return stored

    def _fill(self, key: str, pieces: list[_Piece], array: Array) -> None:
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

    def _check(self, key: str, pieces: list[_Piece]) -> None:
        spans = []
        for piece in pieces:
            if piece.entry.dtype.is_bytes:
                self._read_objects(key, piece)
            else:
                spans.append(Span(key, piece.file, piece.entry.offset, piece.entry.size))
        read_spans(spans)
        for span, piece in zip(spans, [piece for piece in pieces if not piece.entry.dtype.is_bytes], strict=True):
            _compare(key, piece.file, piece.entry, span.crc)

    def _stream(self, key: str, piece: _Piece, target: Array) -> None:
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

    def _read_objects(self, key: str, piece: _Piece) -> Array:
        entry, file = piece.entry, piece.file
        try:
            data = file.read(entry.offset, entry.size)
            count = math.prod(entry.shape)
            if entry.dtype is not VARIANT:
                elements, crc = strings.decode(data, count, self._byteorder)
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


def _replaced(prefix: str, key: str | None) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        "the checkpoint that was opened no longer exists: another one has replaced it",
        key=key,
        file=prefix,
        remedy="open or restore the path again to get the checkpoint that replaced it",
    )


def _compare(key: str, file: ReadableFile, entry: Entry, crc: int) -> None:
    if mask(crc) != entry.crc:
        raise wrong_checksum(key, file.path, entry.offset, entry.crc, crc)


def _lengths(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def _encode_key(key: str) -> bytes:
    """A key as it is in the index. An impossible key becomes one that no index has."""
    if key and key[0] != "\0":
        try:
            return key.encode()
        except UnicodeEncodeError:
            pass
    return _NOWHERE

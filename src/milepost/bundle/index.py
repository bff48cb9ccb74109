"""The index of an open V2 checkpoint: its header, its keys and their entries.

`milepost.bundle.writer` has the grammar. The first few keys that are asked for are looked up one by one. After them the whole
index is read, and all entries of the usual form are decoded at once, unless a block of it is damaged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from milepost.bundle.catalogue import UNKNOWN, Catalogue
from milepost.bundle.format import strings
from milepost.bundle.format.columns import decode_all, entries_of
from milepost.bundle.format.entry import Entry, decode
from milepost.bundle.format.messages import BundleHeader
from milepost.bundle.format.slices import KEY_START, parse_slice_key, slice_key
from milepost.bundle.held import FileInMemory, have_same_bytes
from milepost.bundle.problems import no_such_key
from milepost.bundle.writer import HEADER_KEY, VERSION
from milepost.coding.protobuf import parse
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.storage import ReadableFile, Storage
from milepost.storage.local_files import LocalFile, Stamp
from milepost.table import Rows, TableReader
from milepost.tensor import TensorSlice, TensorSpec

_LITTLE, _BIG = 0, 1
_MOST_SHARDS: Final = 99_999
"""The largest number of shards that the five digits in the names of data files allow."""
_FEW_SHARDS: Final = 64
"""If the header has a larger number, only the data files that entries name are expected. A save to an object store draws a number that no other
save has, and TensorFlow opens only what entries name."""
_NOWHERE: Final = KEY_START
"""A key that no index has. It is not the key of the header, which is empty, and is too short for that of a slice."""
_FIRST_NAME: Final = "\x01"
"""No key of a tensor is less than this text. Those of pieces are, and that of the header."""
_FEW: Final = 64
"""The number of keys that are looked up one by one before the whole index is read."""


class Index:
    """An open index. Several threads may use it, also while one of them lets it forget what was parsed.

    Args:
        storage: Where it is.
        prefix: The checkpoint's prefix, for errors.
        path: The path of the index.

    Attributes:
        file: The open file, or its content if the file was closed.
        shards: The number of data files in their names.
        byteorder: The byte order of the machine that wrote them.
        decoded: The entries that are decoded so far, by key.

    Raises:
        CorruptCheckpointError: The file is not an index, or its header is damaged.
        UnsupportedError: The header says that this reader must not read the checkpoint.
    """

    def __init__(self, storage: Storage, prefix: str, path: str) -> None:
        self._storage = storage
        self._prefix = prefix
        self.file = storage.open(path)
        self._stamp = _stamp_of(self.file)
        self.decoded: dict[str, Entry] = {}
        self._rows: Rows | None = None
        self._names: list[str] | None = None
        self._catalogue: Catalogue | None = None
        self._are_decoded = False
        self._lookups = 0
        self._is_closed = False
        try:
            self._table = TableReader(self.file)
            self.shards, self.byteorder = self._read_header()
        except MilepostError as error:
            self.file.close()
            raise error.with_context(file=path) from None
        except BaseException:  # Ctrl-C, whose traceback may keep this object
            self.file.close()
            raise

    def keys(self) -> list[str]:
        """The names of all tensors, sorted."""
        return [*self._all_names()]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self._known() or self._open_table().get(_encode_key(key)) is not None)

    def entry(self, key: str) -> Entry:
        """The entry of a tensor."""
        entry = self.decoded.get(key) or self.find(key)
        if entry is None:
            raise no_such_key(key, self.keys(), self._prefix)
        return entry

    def find(self, key: str, box: TensorSlice | None = None) -> Entry | None:
        """The entry of a tensor, or of the piece of one that was saved as this box. None if there is none."""
        entry = self._known().get(key) if box is None else None
        if entry is None:
            name = _encode_key(key)
            row = self._open_table().get(name if box is None else slice_key(name, box))
            if row is None:
                return None
            entry = self._decode(key, row)
            if box is None:
                self.decoded[key] = entry
        return entry

    def piece(self, key: str, entry: Entry, box: TensorSlice) -> Entry:
        """The entry of a piece that the entry of a tensor names.

        Raises:
            CorruptCheckpointError: There is no such piece, or it has another element type or shape.
        """
        stored = self.find(key, box)
        expected = TensorSpec(entry.dtype, box.shape(entry.shape))
        if stored is None or stored.slices or TensorSpec(stored.dtype, stored.shape) != expected:
            raise CorruptCheckpointError(
                f"the slice {box} of the tensor is not as its entry says",
                key=key,
                file=self.file.path,
                expected=expected,
                found="nothing" if stored is None else TensorSpec(stored.dtype, stored.shape),
            )
        return stored

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All entries, also those of pieces, with the name of their tensor."""
        columns = self._columns()
        entries = entries_of(columns)
        for row in columns.others:
            entries[row] = self._other(row)
        return zip(map(self.name_of, columns.keys), entries, strict=True)

    def catalogue(self) -> Catalogue:
        """All tensors, sorted by key.

        Raises:
            CorruptCheckpointError: A key is malformed, or an entry is damaged.
            UnsupportedError: Values of an element type cannot be read.
        """
        names, columns = self._all_names(), self._columns()
        pieces = len(columns.keys) - len(names)
        catalogue = columns.take(np.arange(pieces, len(columns.keys))) if pieces else columns
        others = {position: self._other(position + pieces) for position in catalogue.others}
        return catalogue._replace(keys=names).with_entries(others)

    def with_pieces(self) -> Catalogue:
        """All entries by their rows, first those of pieces. `name_of` says what a row is. Errors are those of `catalogue`."""
        columns = self._columns()
        return columns.with_entries({row: self._other(row) for row in columns.others})

    def shard_numbers(self) -> Sequence[int]:
        """The numbers of the data files that there must be. Errors are those of `catalogue`, if only some of them are expected."""
        if self.shards <= _FEW_SHARDS:
            return range(self.shards)
        file = self.with_pieces().file
        numbers: list[int] = np.unique(file[(file != UNKNOWN) & (file < self.shards)]).tolist()
        return numbers

    def name_of(self, row: str) -> str:
        """The key of a tensor, or the key and the box of a piece.

        Raises:
            CorruptCheckpointError: The row is malformed.
        """
        if row >= _FIRST_NAME:
            return row if row.isascii() else self._decode_key(_bytes_of(row))
        try:
            name, box = parse_slice_key(_bytes_of(row))
        except MilepostError as error:
            raise error.with_context(file=self.file.path) from None
        return f"{self._decode_key(name)} [{box}]"

    def verify(self) -> None:
        """Reads all blocks of the file again, also those that are in memory, and compares their checksums."""
        TableReader(self.file).verify()

    def is_visible(self) -> bool | None:
        """Whether the index that has this path now is the one that was opened; None if there is none.

        Raises:
            StorageError: This cannot be told.
        """
        try:
            present = self._storage.open(self.file.path)
        except CheckpointNotFoundError:
            return None
        try:
            stamp = _stamp_of(present)
            if stamp is not None and stamp == self._stamp:  # then the bytes need not be read again
                return True
            are_same = have_same_bytes(self.file, present)
            if are_same:
                self._stamp = stamp
            return are_same
        finally:
            present.close()

    def release(self) -> None:
        """Closes the file and keeps its content.

        Raises:
            StorageError: The file cannot be read. It stays open.
        """
        if not isinstance(self.file, FileInMemory):
            file = self.file
            self.file = self._table.file = FileInMemory(file.path, file.read(0, file.size))
            file.close()

    def close(self) -> None:
        """Closes the file. What was not read before cannot be read any more, which is a `ValueError`."""
        self._is_closed = True
        self.file.close()

    def forget(self) -> None:
        """Forgets what was parsed, which takes more memory than the file, and is seldom needed again."""
        self.decoded.clear()
        self._rows, self._names, self._catalogue, self._are_decoded, self._lookups = None, None, None, False, 0

    def forget_blocks(self) -> None:
        """Forgets the blocks of the file that are in memory. They are read again when they are needed."""
        self._table.forget()

    def _read_header(self) -> tuple[int, strings.Order]:
        header = read_header(self._table)
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

    def _known(self) -> dict[str, Entry]:
        """The entries that are decoded so far. After a few calls, these are all of the usual form, which takes less time than one after the other."""
        self._lookups += 1
        if self._lookups > _FEW and not self._are_decoded:
            self._are_decoded = True
            with suppress(CorruptCheckpointError):  # what is malformed concerns nobody who reads another key
                names, columns = self._all_names(), self._columns()
                self._rows = self._catalogue = None  # they take as much memory again
                self.forget_blocks()
                pieces = len(columns.keys) - len(names)
                entries = dict(zip(names, entries_of(columns)[pieces:], strict=True))
                for row in columns.others:
                    if row >= pieces:
                        del entries[names[row - pieces]]
                self.decoded = entries | self.decoded
        return self.decoded

    def _all_rows(self) -> Rows:
        """All rows of the table but the header: the entries of pieces, and then those of tensors."""
        all_rows = self._rows
        if all_rows is None:
            rows = self._open_table().rows()
            header = bisect_left(rows.keys, KEY_START.decode())
            all_rows = self._rows = Rows(rows.keys[header:], rows.data, rows.starts[header:], rows.ends[header:])
        return all_rows

    def _open_table(self) -> TableReader:
        if self._is_closed:
            raise ValueError(f"the reader of {self._prefix} is closed")
        return self._table

    def _all_names(self) -> list[str]:
        """The keys of all tensors."""
        names = self._names
        if names is None:
            rows = self._all_rows().keys
            names = rows[bisect_left(rows, _FIRST_NAME) :]
            if not all(map(str.isascii, names)):
                names = [*map(self.name_of, names)]
            self._names = names
        return names

    def _columns(self) -> Catalogue:
        """All rows, as far as they are decoded together."""
        catalogue = self._catalogue
        if catalogue is None:
            catalogue = self._catalogue = decode_all(self._all_rows())
        return catalogue

    def _other(self, row: int) -> Entry:
        """The entry in a row that was not decoded with the others."""
        rows = self._all_rows()
        return self._decode(self.name_of(rows.keys[row]), rows.value(row))

    def _decode_key(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise CorruptCheckpointError(
                "a key that is not UTF-8", key=name, file=self.file.path, remedy="the other keys can be read by name"
            ) from None

    def _decode(self, key: str, row: bytes) -> Entry:
        try:
            return decode(row)
        except MilepostError as error:
            raise error.with_context(key=key, file=self.file.path) from None


def read_header(table: TableReader) -> BundleHeader:
    """The header of an index. Its key is less than all others, so nothing else is decoded.

    Raises:
        CorruptCheckpointError: There is none, or it is damaged.
    """
    key, row = table.first() or (None, b"")
    if key != HEADER_KEY:
        raise CorruptCheckpointError("the index has no header, so it is not that of a checkpoint")
    return parse(BundleHeader, row, what="the header of the index")


def _stamp_of(file: ReadableFile) -> Stamp | None:
    """The stamp of a file of this machine, if it has one already."""
    return file.stamp if isinstance(file, LocalFile) else None


def _bytes_of(name: str) -> bytes:
    """A key as it is in the index, of a key in `Rows`."""
    return name.encode("latin-1")


def _encode_key(key: str) -> bytes:
    """A key as it is in the index. An impossible key becomes one that no index has."""
    if key and key[0] != "\0":
        try:
            return key.encode()
        except UnicodeEncodeError:
            pass
    return _NOWHERE

"""The index of an open V2 checkpoint: its header, its keys and their entries.

`milepost.bundle.writer` has the grammar. The first few keys that are asked for are looked up one by one. After them the whole
index is read, and all entries of the usual form are decoded at once. If a block of it is damaged, keys are looked up one by one for good.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

import numpy as np

from milepost.bundle import strings
from milepost.bundle.catalogue import Catalogue
from milepost.bundle.columns import decode_all, entries_of
from milepost.bundle.entry import Entry, decode, decode_spec
from milepost.bundle.held import FileInMemory, have_same_bytes
from milepost.bundle.messages import BundleHeader
from milepost.bundle.problems import no_such_key
from milepost.bundle.slices import KEY_START, parse_slice_key, slice_key
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
_NOWHERE: Final = KEY_START
"""A key that no index has. It is not the key of the header, which is empty, and is too short for that of a slice."""
_FIRST_NAME: Final = "\x01"
"""No key of a tensor is less than this text. Those of pieces are, and that of the header."""
_FEW: Final = 64
"""The number of keys that are looked up one by one before the whole index is read."""

_Decoded = TypeVar("_Decoded")


class Index:
    """An open index. Several threads may use it, also while one of them lets it forget what was parsed.

    Args:
        storage: Where it is.
        prefix: The checkpoint's prefix, for errors.
        path: The path of the index.

    Attributes:
        file: The open file, or its content if the file was closed.
        shards: The number of data files.
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
        self._is_damaged = False
        """Whether a block cannot be read. Then keys are looked up one by one, since those of other blocks can be read."""
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
        return isinstance(key, str) and (key in self.decoded or self._row(_encode_key(key)) is not None)

    def spec(self, key: str) -> TensorSpec:
        """Element type and shape of a tensor."""
        entry = self.decoded.get(key)
        return entry.spec if entry is not None else self._decode(key, self._row_of(key), decode_spec)

    def entry(self, key: str) -> Entry:
        """The entry of a tensor."""
        entry = self.decoded.get(key)
        if entry is None:
            row = self._row_of(key)
            if self._lookups > _FEW and not self._are_decoded:
                self._decode_usual()
                entry = self.decoded.get(key)
        if entry is None:
            entry = self.decoded[key] = self._decode(key, row, decode)
        return entry

    def stored_entry(self, key: str, box: TensorSlice | None) -> Entry | None:
        """The entry of a tensor, or of the piece of one that was saved as this box. None if there is none."""
        name = _encode_key(key)
        row = self._row(name if box is None else slice_key(name, box))
        return None if row is None else self._decode(key, row, decode)

    def piece(self, key: str, entry: Entry, box: TensorSlice) -> Entry:
        """The entry of a piece that the entry of a tensor names.

        Raises:
            CorruptCheckpointError: There is no such piece, or it has another element type or shape.
        """
        stored = self.stored_entry(key, box)
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
        rows = self._all_rows()
        for place in range(self._header_end(), len(rows.keys)):
            row, value = _bytes_of(rows.keys[place]), rows.value(place)
            if row.startswith(KEY_START):
                try:
                    name, box = parse_slice_key(row)
                except MilepostError as error:
                    raise error.with_context(file=self.file.path) from None
                key = self._decode_key(name)
                yield f"{key} [{box}]", self._decode(key, value, decode)
            else:
                yield (key := self._decode_key(row)), self._decode(key, value, decode)

    def catalogue(self) -> Catalogue:
        """All tensors, sorted by key, but what is known of entries of the usual form only.

        Raises:
            CorruptCheckpointError: A key is malformed.
        """
        pieces = self._pieces_end() - self._header_end()
        found = self.with_pieces()
        if pieces:
            found = found.take(np.arange(pieces, len(found.keys)))
        return found._replace(keys=self._all_names())

    def with_pieces(self) -> Catalogue:
        """All entries by their rows, first those of pieces. Errors are those of `rows` of a `milepost.table.TableReader`."""
        found = self._catalogue
        if found is None:
            rows, header = self._all_rows(), self._header_end()
            found = decode_all(rows.keys[header:], rows.data, rows.starts[header:], rows.ends[header:])
            self._catalogue = found
        return found

    def encoded(self, place: int) -> bytes:
        """The entry at a position in `with_pieces`, as it is in the file."""
        return self._all_rows().value(self._header_end() + place)

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
            return self._has_bytes_of(present)
        finally:
            present.close()

    def _has_bytes_of(self, present: ReadableFile) -> bool:
        """Whether a file has the bytes of the one that was opened. They are not read again while its stamp stays the same."""
        stamp = _stamp_of(present)
        if stamp is not None and stamp == self._stamp:
            return True
        are_same = have_same_bytes(self.file, present)
        if are_same:
            self._stamp = stamp
        return are_same

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

    def _decode_usual(self) -> None:
        """Decodes all entries of the usual form, which takes less time than one after the other."""
        self._are_decoded = True
        with suppress(CorruptCheckpointError):  # a malformed key concerns nobody who reads another
            catalogue = self.catalogue()
            if len(catalogue.others) == len(catalogue.keys):
                return
            self._catalogue = self._rows = None  # they take as much memory again
            self.forget_blocks()
            found = dict(zip(catalogue.keys, entries_of(catalogue), strict=True))
            for place in catalogue.others:
                del found[catalogue.keys[place]]
            self.decoded = found | self.decoded

    def _row_of(self, key: str) -> bytes:
        row = self._row(_encode_key(key))
        if row is None:
            raise no_such_key(key, self.keys(), self._prefix)
        return row

    def _row(self, key: bytes) -> bytes | None:
        self._lookups += 1
        if self._rows is None and (self._lookups <= _FEW or self._is_damaged):
            return self._open_table().get(key)
        names = self._names
        if self._rows is None and names is not None and not key.startswith(KEY_START):
            name = key.decode()
            place = bisect_left(names, name)
            if names[place : place + 1] != [name]:
                return None
        try:
            rows, text = self._all_rows(), key.decode("latin-1")
        except CorruptCheckpointError:
            self._is_damaged = True
            return self._open_table().get(key)
        place = bisect_left(rows.keys, text)
        return rows.value(place) if place < len(rows.keys) and rows.keys[place] == text else None

    def _all_rows(self) -> Rows:
        """All rows of the table: the header, the entries of pieces, and the entries of tensors."""
        rows = self._rows
        if rows is None:
            rows = self._rows = self._open_table().rows()
        return rows

    def _open_table(self) -> TableReader:
        if self._is_closed:
            raise ValueError(f"the reader of {self._prefix} is closed")
        return self._table

    def _header_end(self) -> int:
        """The position of the first row that is not the header."""
        return bisect_left(self._all_rows().keys, KEY_START.decode())

    def _pieces_end(self) -> int:
        """The position of the first row of a tensor. The pieces of tensors are before it."""
        return bisect_left(self._all_rows().keys, _FIRST_NAME)

    def _all_names(self) -> list[str]:
        """The keys of all tensors."""
        names = self._names
        if names is None:
            names = self._all_rows().keys[self._pieces_end() :]
            if not all(map(str.isascii, names)):
                names = [*map(self._decode_key, map(_bytes_of, names))]
            self._names = names
        return names

    def _decode_key(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise CorruptCheckpointError(
                "a key that is not UTF-8", key=name, file=self.file.path, remedy="the other keys can be read by name"
            ) from None

    def _decode(self, key: str, row: bytes, decoder: Callable[[bytes], _Decoded]) -> _Decoded:
        try:
            return decoder(row)
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

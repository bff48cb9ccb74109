"""Reads the directory of a zip archive, which lists its records and their positions.

::

    archive  := {local header  data}  {entry}  (zip64 end)?  (locator)?  end   the entries are the directory
    local header := "PK\\3\\4"  22 bytes, as in the entry  lengths of name and extra:u16^2  name  extra
    entry    := "PK\\1\\2"  versions:u16^2  flags:u16  method:u16  time:u32  crc:u32  compressed size:u32  size:u32
                lengths of name, extra and comment:u16^3  disk:u16  attributes:u16  more attributes:u32  offset:u32
                name  extra  comment
    extra    := {id:u16  length:u16  data}                       id 1: those of size, compressed size, offset, each u64,
                                                                 that are all ones in the entry
    end      := "PK\\5\\6"  disks:u16^2  entries:u16^2  size:u32  offset:u32  length of comment:u16  comment
    locator  := "PK\\6\\7"  disk:u32  place of the zip64 end:u64  disks:u32
    zip64 end:= "PK\\6\\6"  length:u64  versions:u16^2  disks:u32^2  entries:u64^2  size:u64  offset:u64

Integers are little-endian. Limits: a directory may name 500,000 records, each once, and the records must not overlap. So time and
memory are in proportion to the size of the archive. Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.near_reads import read_rows
from milepost.storage import ReadableFile

MOST_RECORDS: Final = 500_000

BEGINNING: Final = b"PK\x03\x04"
"""The first bytes of an archive that has records."""

_END_SIGNATURE: Final = b"PK\5\6"
_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_ENTRY: Final = np.dtype(
    [
        ("signature", "<u4"),
        ("versions", "<u2", 2),
        ("flags", "<u2"),
        ("method", "<u2"),
        ("time", "<u4"),
        ("crc", "<u4"),
        ("stored", "<u4"),
        ("size", "<u4"),
        ("name_length", "<u2"),
        ("extra_length", "<u2"),
        ("comment_length", "<u2"),
        ("disk", "<u2"),
        ("attributes", "<u2"),
        ("more_attributes", "<u4"),
        ("offset", "<u4"),
    ]
)
_SIGNATURE: Final = int.from_bytes(b"PK\1\2", "little")
_BEFORE_LENGTHS: Final = 28
"""The bytes of an entry before the lengths of its name, extra field and comment."""
_LENGTHS: Final = struct.Struct("<3H")
_WIDE: Final = ("size", "stored", "offset")
"""The fields that may be in the extra field, in its order."""
LOCAL_HEADER: Final = 30
"""The bytes before the name of a record."""
_LENGTHS_AFTER: Final = (26, 28)
"""Where the lengths of the name and of the extra field are in them."""
_LONGEST_COMMENT: Final = 0xFFFF
_ALL_ONES: Final = 0xFFFFFFFF
_IN_ZIP64: Final = 1
STORED: Final = 0
DEFLATED: Final = 8
_ENCRYPTED: Final = 1


class ZipRecord(NamedTuple):
    """A record of an archive.

    Attributes:
        offset: The position of its local header.
        size: How many bytes it has.
        crc: The CRC-32 of its bytes.
        stored: How many bytes it has in the file.
        method: How it is compressed: `STORED`, `DEFLATED` or another one.
        is_encrypted: Whether it is encrypted.
    """

    offset: int
    size: int
    crc: int
    stored: int
    method: int
    is_encrypted: bool

    @property
    def is_plain(self) -> bool:
        """Whether it is neither compressed nor encrypted."""
        return self.method == STORED and not self.is_encrypted


class Archive:
    """A file that may be a zip archive. Its directory is read once, when it is asked for.

    Args:
        file: The file, which must stay open.
    """

    def __init__(self, file: ReadableFile) -> None:
        self.file = file

    @cached_property
    def looks_like_one(self) -> bool:
        """Whether the file begins like a zip archive with records."""
        return self.file.size >= len(BEGINNING) and bytes(self.file.read(0, len(BEGINNING))) == BEGINNING

    @cached_property
    def is_empty(self) -> bool:
        """Whether the file begins like a zip archive without records."""
        return self.file.size >= _END.size and bytes(self.file.read(0, len(_END_SIGNATURE))) == _END_SIGNATURE

    @cached_property
    def records(self) -> dict[str, ZipRecord]:
        """The records by name; errors are those of `read_directory`."""
        return read_directory(self.file)


def starts_of(records: Iterable[ZipRecord], file: ReadableFile) -> list[int]:
    """The positions of the first bytes of records, after their local headers. Headers that are near each other are read together."""
    offsets = np.array([record.offset for record in records], np.int64)
    headers = read_rows(file, offsets, LOCAL_HEADER)
    name, extra = (headers[:, field] + headers[:, field + 1].astype(np.int64) * 256 for field in _LENGTHS_AFTER)
    starts: list[int] = (offsets + LOCAL_HEADER + name + extra).tolist()
    return starts


def read_directory(file: ReadableFile) -> dict[str, ZipRecord]:
    """The records of an archive by name.

    Raises:
        CorruptCheckpointError: The file is not an archive, is cut off or damaged, or names a record twice.
        UnsupportedError: It has more than 500,000 records.
    """
    try:
        count, size, start = _find(file)
        if count > MOST_RECORDS:
            raise UnsupportedError(
                "the archive has too many records",
                file=file.path,
                expected=f"{MOST_RECORDS} or fewer",
                found=count,
                remedy="save the state in several files",
            )
        return _records(file.read(start, size), count, start)
    except struct.error as error:
        raise _damaged(str(error)).with_context(file=file.path) from None
    except CorruptCheckpointError as error:
        raise error.with_context(file=file.path) from None


def _find(file: ReadableFile) -> tuple[int, int, int]:
    """The number of entries of the directory, its length, and its position."""
    length = min(file.size, _END.size + _LONGEST_COMMENT)
    tail = file.read(file.size - length, length)
    at = tail.rfind(_END_SIGNATURE)
    if at < 0:
        raise _damaged("no end of a directory")
    _, _, _, _, count, size, start, _ = _END.unpack_from(tail, at)
    limit = file.size - length + at
    if limit >= _LOCATOR.size:
        signature, _, position, _ = _LOCATOR.unpack(file.read(limit - _LOCATOR.size, _LOCATOR.size))
        if signature == b"PK\6\7":
            if position + _END64.size > limit:
                raise _damaged("the end of its directory lies outside it")
            signature, *_, count, size, start = _END64.unpack(file.read(position, _END64.size))
            if signature != b"PK\6\6":
                raise _damaged("its directory has no end")
            limit = position
    if start + size > limit:
        raise _damaged(f"a directory of {size} bytes at byte {start} of {limit}")
    return count, size, start


def _records(directory: bytes, count: int, limit: int) -> dict[str, ZipRecord]:
    """The records that a directory lists. Very many are checked together, in columns."""
    starts = _starts(directory, count)
    begins = [start + _ENTRY.itemsize for start in starts]
    entries = np.frombuffer(b"".join([directory[begin - _ENTRY.itemsize : begin] for begin in begins]), _ENTRY)
    for index in np.flatnonzero(entries["signature"] != _SIGNATURE)[:1].tolist():
        raise _damaged(f"no entry at byte {starts[index]} of its directory")
    ends = (np.array(begins, np.int64) + entries["name_length"]).tolist()
    names = _names(directory, begins, ends)
    size, stored, offset = (entries[name].astype(np.uint64) for name in _WIDE)
    is_wide = (size == _ALL_ONES) | (stored == _ALL_ONES) | (offset == _ALL_ONES)
    for index in np.flatnonzero(is_wide).tolist():
        extra = directory[ends[index] : ends[index] + entries["extra_length"][index]]
        fields = (int(column[index]) for column in (size, stored, offset))
        size[index], stored[index], offset[index] = _from_zip64(extra, *fields)
    is_encrypted = entries["flags"] & _ENCRYPTED != 0
    for index in np.flatnonzero((entries["method"] == STORED) & (size != stored) & ~is_encrypted)[:1].tolist():
        raise _damaged(f"the record {names[index]!r:.80} has {size[index]} bytes, of which {stored[index]} are stored")
    _check_places(offset, stored, entries["name_length"], limit)
    columns = (offset, size, entries["crc"], stored, entries["method"], is_encrypted)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(
        zip(names, map(tuple.__new__, repeat(ZipRecord), rows), strict=True)
    )  # twice as fast as to call the class


def _starts(directory: bytes, count: int) -> list[int]:
    """Where the entries of a directory begin. Each tells where the next one does."""
    starts = []
    position, width, lengths = 0, _ENTRY.itemsize, _LENGTHS.unpack_from
    for _ in range(count):
        starts.append(position)
        name, extra, comment = lengths(directory, position + _BEFORE_LENGTHS)
        position += width + name + extra + comment
    if position != len(directory):
        raise _damaged(f"{count} entries of {position} bytes in a directory of {len(directory)}")
    return starts


def _names(directory: bytes, begins: Iterable[int], ends: Iterable[int]) -> list[str]:
    """The names of records, of which no two have the same."""
    try:
        names = [directory[begin:end].decode() for begin, end in zip(begins, ends, strict=True)]
    except UnicodeDecodeError:
        raise _damaged("a name that is not UTF-8") from None
    if len(set(names)) < len(names):
        repeated = next(name for name, times in Counter(names).items() if times > 1)
        raise _damaged(f"two records are called {repeated!r:.80}")
    return names


def _check_places(offset: Any, stored: Any, name_length: Any, limit: int) -> None:
    """Checks that records lie before the directory, and that no two of them share bytes.

    Args:
        offset: Where the local header of each begins.
        stored: How many bytes each has in the file.
        name_length: How many bytes its name has.
        limit: Where the directory begins.
    """
    # A record that begins after the limit, or is longer, is beyond it. So no sum is too large for its column.
    is_beyond = (offset > limit) | (stored > limit)
    after = np.where(is_beyond, limit + 1, offset + LOCAL_HEADER + name_length + stored)
    order = np.lexsort((after, offset))
    end = np.concatenate((np.zeros(1, np.uint64), after[order][:-1]))
    for index in np.flatnonzero((offset[order] < end) | (after[order] > limit))[:1].tolist():
        record = order[index]
        last = int(offset[record]) + LOCAL_HEADER + int(name_length[record]) + int(stored[record])
        raise _damaged(f"a record from byte {offset[record]} to byte {last} is not between {end[index]} and {limit}")


def _from_zip64(extra: bytes, *fields: int) -> list[int]:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        position += 4
        if kind == _IN_ZIP64:
            wide = iter(struct.unpack_from(f"<{fields.count(_ALL_ONES)}Q", extra, position))
            return [next(wide) if field == _ALL_ONES else field for field in fields]
        position += length
    return list(fields)


def _damaged(found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "the PyTorch file is cut off or damaged: it begins like a zip archive, but its directory is missing or wrong",
        expected="a zip archive whose records have different names and do not overlap",
        found=found,
    )

"""The bytes of the records of a zip archive: decompressed, and compared with their checksums.

Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.4.5 and 4.4.7; `zip_directory` describes the archive.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterator
from typing import Final

from milepost.bundle.counting import counter
from milepost.bundle.transfer import read_chunks
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.near_reads import NearReads
from milepost.foreign.zip_directory import DEFLATED, STORED, ZipRecord, read_directory, starts_of
from milepost.storage import ReadableFile

_FREELY: Final = 64 << 20
"""Bytes of memory that objects of text may take beyond what their bytes in the archive can stand for."""
_OF_TEXT: Final = 60
"""Bytes of memory that objects of text may take for each byte in a record without compression: an empty one takes some dozens of bytes."""
_DEFLATED: Final = 1032
"""The most bytes that one byte of Deflate stands for."""
_OBJECT: Final = 41
"""Bytes of memory that an object of text takes beside its characters, and the place that refers to it."""
_AT_ONCE: Final = 1 << 20
"""The most bytes that are decompressed at once."""
SMALL: Final = 1 << 16
"""The bytes up to which records are read together with those that follow them, to compare their checksums."""


class TextBudget:
    """The memory that objects of text in one archive may take together."""

    def __init__(self) -> None:
        self._left = _FREELY

    def take(self, record: ZipRecord, count: int, size: int) -> None:
        """Takes memory for the objects that a record becomes.

        Args:
            record: The record.
            count: The number of objects.
            size: The bytes of their characters.

        Raises:
            CorruptCheckpointError: They would take more memory than the bytes in the archive can stand for.
        """
        needed = count * _OBJECT + size
        allowed = record.stored * (_OF_TEXT if record.method == STORED else _DEFLATED)
        self._left -= max(0, needed - allowed)
        if self._left < 0:
            raise CorruptCheckpointError(
                "text would take more memory than its bytes in the file can stand for",
                expected=f"at most {allowed} bytes, and {_FREELY} more for all text of the file",
                found=f"{needed} bytes for {count} texts",
                remedy="save text as one array of bytes, or as JSON, if this is no mistake",
            )


def check_readable(record: ZipRecord, start: int, file: ReadableFile, what: str) -> None:
    """Checks that the bytes of a record are in the file, in a form that `content` reads.

    Args:
        record: The record.
        start: The position of its first byte.
        file: The archive.
        what: What errors call the archive, such as ``the .npz file``.

    Raises:
        CorruptCheckpointError: The file is truncated.
        UnsupportedError: The record is encrypted, or compressed by another method than Deflate.
    """
    if record.is_encrypted or record.method not in (STORED, DEFLATED):
        raise UnsupportedError(
            f"a record of {what} is encrypted, or compressed in a way that is not read",
            expected="a record without compression, or compressed by Deflate",
            found="encrypted" if record.is_encrypted else f"method {record.method}",
            remedy="write the file again with the library that made it",
        )
    if start + record.stored > file.size:
        raise CorruptCheckpointError(f"{what} is truncated", expected=f"{start + record.stored} bytes or more")


def content(file: ReadableFile, record: ZipRecord, start: int, what: str) -> Iterator[bytes]:
    """The bytes of a record, decompressed, in chunks of some megabytes. Arguments are those of `check_readable`.

    Raises:
        CorruptCheckpointError: The compressed bytes are damaged.
    """
    if not record.stored:
        return
    if record.method == STORED:
        for chunk in read_chunks(file, start, record.stored):
            yield chunk.tobytes()
        return
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    left = record.size
    try:
        for chunk in read_chunks(file, start, record.stored):
            waiting = chunk.tobytes()
            while not inflate.eof:
                data = inflate.decompress(waiting, _AT_ONCE)
                waiting = inflate.unconsumed_tail
                left -= len(data)
                if left < 0:
                    raise CorruptCheckpointError(f"a record of {what} is longer than its directory says")
                if data:
                    yield data
                if not waiting and len(data) < _AT_ONCE:
                    break
    except zlib.error as error:
        raise CorruptCheckpointError(f"compressed data in {what} is damaged", found=str(error)) from None
    if left:
        raise CorruptCheckpointError(f"a record of {what} is shorter than its directory says")


def check(file: ReadableFile, record: ZipRecord, start: int, what: str, reads: NearReads | None = None) -> None:
    """Reads a record, and compares its checksum.

    Args:
        file: See `content`, like ``record``, ``start`` and ``what``.
        record: The record.
        start: The position of its first byte.
        what: What errors call the archive.
        reads: Reads small records, if many of them are checked.

    Raises:
        CorruptCheckpointError: The checksum is wrong.
    """
    crc = 0
    if reads is not None and record.method == STORED and record.stored <= SMALL:
        if (count := counter()) is not None:
            count(record.stored)
        crc = zlib.crc32(reads.read(start, record.stored))
    else:
        for chunk in content(file, record, start, what):
            crc = zlib.crc32(chunk, crc)
    if crc != record.crc:
        raise CorruptCheckpointError(
            f"{what} is damaged at byte {start}: wrong checksum",
            file=file.path,
            expected=f"{record.crc:#010x}",
            found=f"{crc:#010x}",
        )


def check_others(file: ReadableFile, done: Container[int], what: str, unknown: int | None = None) -> None:
    """Reads all records of an archive that have not been read, and compares their checksums.

    Args:
        file: The archive.
        done: The positions of the first bytes of records that have been read.
        what: What errors call the archive.
        unknown: The checksum of records that have none.

    Raises:
        CorruptCheckpointError: A checksum is wrong. The key is the name of the record.
        UnsupportedError: A record cannot be read.
    """
    records = read_directory(file)
    for (name, record), start in zip(records.items(), starts_of(records.values(), file), strict=True):
        if start in done or record.crc == unknown:
            continue
        try:
            check_readable(record, start, file, what)
            check(file, record, start, what)
        except MilepostError as error:
            raise error.with_context(key=f"{name:.200}", file=file.path) from None

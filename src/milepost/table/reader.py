"""Reads a sorted string table: single keys without reading the rest, or all entries in order."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.errors import CorruptCheckpointError, MilepostError
from milepost.storage import ReadableFile
from milepost.table.block import FOOTER_SIZE, TRAILER_SIZE, Handle, decode_footer, entries, unseal


class TableReader:
    """A table in a file. Its index is read at once, its blocks when they are needed, and then kept.

    Args:
        file: The file; it stays the caller's, to be closed when the reader is done with.

    Raises:
        CorruptCheckpointError: The file is not a table, or damaged.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._blocks: dict[Handle, bytes] = {}
        if file.size < FOOTER_SIZE:
            raise CorruptCheckpointError(
                "this file is too short for a checkpoint index",
                file=file.path,
                expected=f"at least {FOOTER_SIZE} bytes",
                found=f"{file.size} bytes",
            )
        try:
            _, index = decode_footer(file.read(file.size - FOOTER_SIZE, FOOTER_SIZE))
            self._index = [
                (key, Handle.decode(value)[0]) for key, value in entries(self._contents(index))
            ]
        except MilepostError as error:
            raise error.with_context(file=file.path) from None

    def get(self, key: bytes) -> bytes | None:
        """The value under a key, or None."""
        for found, value in self.items(key):
            return value if found == key else None
        return None

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All entries whose keys are not less than ``start``, in order.

        Raises:
            CorruptCheckpointError: A block is damaged, or keys do not ascend.
        """
        last: bytes | None = None
        for block in range(self._first_block(start), len(self._index)):
            limit, handle = self._index[block]
            try:
                for key, value in entries(self._contents(handle), start):
                    if last is not None and key <= last:
                        raise CorruptCheckpointError("blocks of the index are out of order", found=key)
                    last = key
                    yield key, value
            except MilepostError as error:
                raise error.with_context(file=f"{self._file.path} (block at offset {handle.offset})") from None
            if last is not None and last > limit:
                raise CorruptCheckpointError("the index disagrees with its blocks", file=self._file.path, found=last)

    def verify(self) -> None:
        """Reads and checks every block."""
        for _ in self.items():
            pass

    def _first_block(self, start: bytes) -> int:
        low, high = 0, len(self._index)
        while low < high:
            middle = (low + high) // 2
            if self._index[middle][0] < start:
                low = middle + 1
            else:
                high = middle
        return low

    def _contents(self, handle: Handle) -> bytes:
        contents = self._blocks.get(handle)
        if contents is None:
            end = handle.offset + handle.size + TRAILER_SIZE
            if end > self._file.size - FOOTER_SIZE:
                raise CorruptCheckpointError(
                    "a block of the index lies outside its file",
                    file=self._file.path,
                    expected=f"an end before {self._file.size - FOOTER_SIZE}",
                    found=end,
                )
            contents = unseal(self._file.read(handle.offset, handle.size + TRAILER_SIZE))
            self._blocks[handle] = contents
        return contents

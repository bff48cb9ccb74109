"""Checks the object headers of an HDF5 file before the HDF5 library reads them.

Each group, dataset and named type has a header, a list of messages in one or more blocks. A message may say where the next block is, and how
long. If that is wrong, the library may read the same block for ever, or take gigabytes of memory. So a header is checked before the object is
opened::

    superblock  := signature:8  0  u8^4  O:u8  L:u8  reserved:17  base:O  O^3  link name:O  root:O              version 0
                 | signature:8  1  u8^4  O:u8  L:u8  reserved:21  base:O  O^3  link name:O  root:O              version 1
                 | signature:8  2 or 3  O:u8  L:u8  flags:u8  base:O  extension:O  end:O  root:O                O and L: bytes of offsets and lengths
    header      := 1  reserved:u8  messages:u16  references:u32  size:u32  reserved:u32  block
                 | "OHDR"  2  flags:u8  times:16?  limits:4?  size:u8, u16, u32 or u64  block  checksum:u32
    block       := {message}  rest                                                    of this size
    message     := kind:u16  size:u16  flags:u8  reserved:u8^3  body                  in a header of version 1
                 | kind:u8  size:u16  flags:u8  order:u16?  body                      in one of version 2
    next block  := offset:O  length:L                                                 the body of a message of kind 16
                   in a header of version 2, "OCHK" is before that block, and a checksum:u32 after it
    shared      := 1  u8  reserved:6  header:O  |  2  u8  header:O  |  3  2  header:O  the body, if bit 1 of the flags is set
    attribute   := version:u8  flags:u8  sizes of name, type and space:u16^3  character set:u8?  name  type  space     kind 12; versions 2 and 3

                 | 1  reserved:u8  sizes of name, type and space:u16^3  name  type  space, each filled up to a multiple of 8 bytes
    text        := length:u32  collection:O  index:u32                                a text of any length in an attribute, after its space
    names       := tree:O  heap:O                                                     the body of a message of kind 17, of a group
    layout      := 1 or 2  n:u8  2  reserved:u8^5  tree:O  ...                        the body of a message of kind 8, of a dataset in chunks
                 | 3  2  n:u8  tree:O  ...                                            n as in `trees`
                 | 4  2  u8  n:u8  width:u8  size^n  index:u8  ...                    a size has this width; the indexes 3 to 5 are arrays and trees of chunks
    links       := 0  flags:u8  u64?  heap:O  tree:O  ...                             kind 2, of a group; the number is there if bit 0 of the flags is set
    attributes  := 0  flags:u8  u16?  heap:O  tree:O  ...                             kind 21; the number is there if bit 0 of the flags is set

The type of an attribute is shared if bit 0 of its flags is set. Integers are little-endian. Limits: the blocks of a header may have 64 MiB. The texts
of an attribute have no more bytes together than the file, since each is there once. `trees` checks the trees. Links or attributes in a heap, messages
in the heap of the file (kind 15), and the indexes of chunks of version 4 are refused: if these are damaged, the library frees memory that is not its own, divides by 0, or does
not end. It makes them if ``libver="latest"`` or ``track_order=True`` asks for it, which Keras does not do.
Source: HDF5 File Format Specification 3.0, sections II.A and IV.A; seen with HDF5 1.14.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.hdf5.trees import OF_CHUNKS, OF_NAMES, check_tree
from milepost.foreign.near_reads import NearReads
from milepost.storage import ReadableFile

_BLOCK: Final = 8192
"""Bytes that are read at once for small structures."""
_SUPERBLOCK: Final = 96
"""The most bytes of a superblock that are looked at."""
_MOST: Final = 64 << 20
_NEXT_BLOCK: Final = 16
_LINKS: Final = 2
_TYPE: Final = 3
_LAYOUT: Final = 8
_ATTRIBUTE: Final = 12
_MESSAGES: Final = 15
_NAMES: Final = 17
_ATTRIBUTES: Final = 21
_HEAPS: Final = {_LINKS: ("links", 8), _ATTRIBUTES: ("attributes", 2)}
"""By the kind of a message that may name a heap, what is in that, and the bytes of the number before."""
_IN_CHUNKS: Final = 2
_WITHOUT_INDEX: Final = (1, 2)
"""The indexes of version 4 that are none: one chunk, or chunks one after the other."""
_OF_ANY_LENGTH: Final = 9
"""The class of types whose values are in collections."""
_SHARED: Final = 2
_CHECKSUM: Final = 4


class Hdf5Headers:
    """The object headers of a file.

    Args:
        file: The file, which begins with the signature of HDF5, and must stay open.

    Attributes:
        offset: The bytes of a position in the file.
        length: The bytes of a length.
        roots: The positions of the headers that the library reads when it opens the file.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._near = NearReads(file, _BLOCK)
        self._checked: set[int] = set()
        start = bytes(file.read(0, min(file.size, _SUPERBLOCK)))
        version = start[8] if len(start) > 8 else 0
        at_sizes = 9 if version > 1 else 13
        sizes = start[at_sizes : at_sizes + 2]
        self.offset, self.length = (sizes[0], sizes[1]) if len(sizes) == 2 else (8, 8)
        if version > 1:
            begin, indexes = 12, [1, 3]
        else:
            begin, indexes = (28 if version else 24), [5]
        addresses = (_number(start, begin + index * self.offset, self.offset) for index in indexes)
        self.roots = [each for each in addresses if each is not None and not self._is_none(each)]

    def check(self, position: int) -> None:
        """Checks the header at a position, and those that its messages are shared with.

        Raises:
            CorruptCheckpointError: Its blocks do not lie in the file, or are the same ones again.
            UnsupportedError: It has structures of a newer format that are not checked.
        """
        pending = [position]
        while pending:
            address = pending.pop()
            if address not in self._checked:
                self._checked.add(address)
                for kind, flags, body in self._messages(address):
                    header = self._shared_by(kind, flags, body)
                    if header is not None:
                        pending.append(header)
                    if kind == _ATTRIBUTE and not flags & _SHARED:
                        self._check_texts(address, body, header)
                    self._check_tree(address, kind, body)
                    self._refuse_newer(kind, body)

    def _messages(self, position: int) -> Iterator[tuple[int, int, memoryview]]:
        """The kind, the flags and the body of each message of a header."""
        prefix = bytes(self._read(position, 16, position))
        is_new = prefix.startswith(b"OHDR")
        if is_new:
            flags = prefix[5]
            at_size = position + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
            width = 1 << (flags & 3)
            size = int.from_bytes(self._read(at_size, width, position), "little")
            blocks = [(at_size + width, size)]
            before = 6 if flags & 4 else 4
        elif prefix[0] == 1:
            blocks = [(position + 16, int.from_bytes(prefix[8:12], "little"))]
            before = 8
        else:
            return  # the library refuses it
        known: set[int] = set()
        left = _MOST
        for start, size in blocks:
            left -= size
            if start in known or left < 0:
                raise _damaged(position, f"a block of {size} bytes at byte {start}")
            known.add(start)
            data = self._read(start, size, position)
            if is_new and len(known) > 1:
                data = data[4 : max(4, size - _CHECKSUM)]
            begin = 0
            while begin + before <= len(data):
                kind = data[begin] if is_new else int.from_bytes(data[begin : begin + 2], "little")
                at = begin + (1 if is_new else 2)
                end = begin + before + int.from_bytes(data[at : at + 2], "little")
                if end > len(data):
                    break  # the library refuses it
                body = data[begin + before : end]
                if kind == _NEXT_BLOCK:
                    offset, length = (_number(body, 0, self.offset), _number(body, self.offset, self.length))
                    if offset is None or length is None:
                        raise _damaged(position, f"a message of {len(body)} bytes that is to name a block")
                    blocks.append((offset, length))
                else:
                    yield kind, data[at + 2], body
                begin = end

    def _check_tree(self, position: int, kind: int, body: memoryview) -> None:
        """Checks the tree that a message names, if it names one."""
        root, width, tree = None, self.length, OF_NAMES
        if kind == _NAMES:
            root = _number(body, 0, self.offset)
        elif kind == _LAYOUT and len(body) > 3:
            tree = OF_CHUNKS
            if body[0] in (1, 2) and body[2] == _IN_CHUNKS:
                root, width = _number(body, 8, self.offset), 8 + 8 * body[1]
            elif body[0] == 3 and body[1] == _IN_CHUNKS:
                root, width = _number(body, 3, self.offset), 8 + 8 * body[2]
        if root is not None and not self._is_none(root):
            check_tree(lambda start, size: self._read(start, size, position), root, tree, width, self.offset)

    def _refuse_newer(self, kind: int, body: memoryview) -> None:
        """Refuses structures that are not checked."""
        found = ""
        if kind in _HEAPS and len(body) > 1:
            what, width = _HEAPS[kind]
            heap = _number(body, 2 + (width if body[1] & 1 else 0), self.offset)
            found = f"more than 8 {what}, in a heap" if heap is not None and not self._is_none(heap) else ""
        elif kind == _LAYOUT and len(body) > 4 and body[0] > 3 and body[1] == _IN_CHUNKS:
            index = _number(body, 5 + body[3] * body[4], 1)
            found = "chunks with an index of the newest format" if index not in _WITHOUT_INDEX else ""
        elif kind == _MESSAGES:
            found = "messages in a heap of the file"
        if found:
            raise UnsupportedError(
                "the HDF5 file has structures of a newer format, which the HDF5 library cannot read safely if they are damaged",
                expected="those that Keras and h5py write by default",
                found=f"{found}, as libver='latest' or track_order=True may write it",
                remedy="load the file with Keras, and save it again; or copy its datasets into another file with h5py",
            )

    def _is_none(self, position: int) -> bool:
        return position == (1 << 8 * self.offset) - 1

    def _check_texts(self, position: int, body: memoryview, header: int | None) -> None:
        """Checks that the texts of an attribute are not a few bytes of the file very often.

        Args:
            position: The header that has the attribute.
            body: The attribute.
            header: The header that its type is shared with.
        """
        if len(body) < 8 or body[0] not in (1, 2, 3):
            return  # the library refuses it
        sizes = [int.from_bytes(body[begin : begin + 2], "little") for begin in (2, 4, 6)]
        begins, begin = [], 9 if body[0] == 3 else 8
        for size in sizes:
            begins.append(begin)
            begin += -(-size // 8) * 8 if body[0] == 1 else size
        kinds = [body[begins[1]] if begins[1] < len(body) else 0]
        if header is not None:
            kinds = [shared[0] for kind, _, shared in self._messages(header) if kind == _TYPE and shared]
        if not any(kind & 15 == _OF_ANY_LENGTH for kind in kinds):
            return
        width = 8 + self.offset
        total = sum(int.from_bytes(body[at : at + 4], "little") for at in range(begin, len(body) - width + 1, width))
        if total > self._file.size:
            raise CorruptCheckpointError(
                f"the HDF5 file is damaged: an attribute of the object at byte {position} has more text than the file has bytes",
                expected=f"at most {self._file.size} bytes",
                found=f"{total} bytes",
                remedy="copy or download the file again",
            )

    def _shared_by(self, kind: int, flags: int, body: memoryview) -> int | None:
        """The position of the header that a message is shared with, if it is shared."""
        if flags & _SHARED:
            return self._header_in(body)
        if kind == _ATTRIBUTE and len(body) > 8 and body[0] > 1 and body[1] & 1:
            return self._header_in(body[(9 if body[0] > 2 else 8) + int.from_bytes(body[2:4], "little") :])
        return None

    def _header_in(self, shared: memoryview) -> int | None:
        if len(shared) < 2 or (shared[0] == 3 and shared[1] != 2):
            return None
        return _number(shared, 8 if shared[0] == 1 else 2, self.offset)

    def _read(self, start: int, size: int, header: int) -> memoryview:
        if size > self._file.size or start > self._file.size - size:
            raise _damaged(header, f"{size} bytes at byte {start} of {self._file.size}")
        return self._near.read(start, size) if size <= _BLOCK else memoryview(self._file.read(start, size))


def _number(data: bytes | memoryview, at: int, width: int) -> int | None:
    """An integer, or None if the data end before it does."""
    return int.from_bytes(data[at : at + width], "little") if at + width <= len(data) else None


def _damaged(position: int, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"the HDF5 file is damaged: the header of an object, at byte {position}, does not lie in the file",
        expected="blocks of messages, each of them once",
        found=found,
        remedy="copy or download the file again",
    )

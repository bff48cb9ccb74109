"""Reads files of `flax.serialization.to_bytes`, and the single files of `flax.training.checkpoints`: trees in MessagePack.

::

    file     := one object of MessagePack, a map whose keys are text or integers, or an array or scalar
    array    := extension 1: [shape, name of the element type, elements]      row-major, little-endian
    complex  := extension 2: [real, imaginary]
    scalar   := extension 3: as an array
    chunked  := {"__msgpack_chunked_array__": true, "shape": {"0": length, ...}, "chunks": {"0": array, ...}}

Flax divides arrays of more than 1 GiB into chunks of one dimension. The format has no checksums. Arrays stay in the file until they
are read. Limits: a file may have 1,000,000 objects and 100 levels. An object takes at most a few hundred bytes of memory, in addition
to the length of a text or byte string.
Source: the MessagePack specification, ``spec.md``; Flax 0.12, ``flax/serialization.py``.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from typing import Any, Final

from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.coding.depth import DEEPEST
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.shapes import is_shape
from milepost.foreign.stored import Stored
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSpec

_BEGINNING: Final = re.compile(
    rb"([\x80-\x8f]|\xde..|\xdf....)([\xa1-\xbf]|\xd9.)[\x20-\x7e]|(\xc7.|\xc8..|\xc9....|\xd8)([\x01\x03]\x93[\x90-\x9f]|\x02\x92\xcb)",
    re.DOTALL,
)
"""A map whose first key is text, an array, or a complex number."""
_EMPTY: Final = b"\x80"
"""A map of nothing. It is also the beginning of pickled data, so the file must have a name of Flax."""
_NAMED: Final = re.compile(r"\.msgpack$|_\d+$")
_LOOKED_AT: Final = 16
_BUFFERED: Final = 1 << 16
_MOST: Final = 1_000_000
_CHUNKED: Final = "__msgpack_chunked_array__"
_ARRAY: Final = 1
_COMPLEX: Final = 2
_SCALAR: Final = 3
_NUMBERS: Final = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS: Final = {1: ">B", 2: ">H", 4: ">I"}

_Runs = tuple[tuple[int, int], ...]
"""The runs of bytes that hold the elements of a tensor, each as its position and its length."""


def looks_like(file: ReadableFile) -> bool:
    """Whether a file begins like a map of MessagePack whose first key is text, or like an array or a complex number of Flax; or is an empty
    map."""
    start = bytes(file.read(0, min(file.size, _LOOKED_AT)))
    return _BEGINNING.match(start) is not None or (start == _EMPTY and _NAMED.search(file.path) is not None)


class FlaxFile:
    """An open file of Flax; see `ForeignFile`.

    Args:
        file: The file.

    Raises:
        CorruptCheckpointError: The file is damaged or cut off.
        UnsupportedError: It exceeds a limit, or holds something that Flax does not write.
    """

    dotted = False
    kind = ""
    library = "Flax"

    def __init__(self, file: ReadableFile) -> None:
        self.path = file.path
        self.paths = [file.path]
        self._file = file
        try:
            self.tree: Any = _Parser(file).parse()
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None

    def read_into(self, tensor: Stored, destination: Array) -> None:
        target = bytes_of(destination)
        start = 0
        for position, length in tensor.place:
            self._file.read_into(position, target[start : start + length])
            start += length
        if sys.byteorder == "big":
            swap_bytes(target, tensor.spec.dtype)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        runs: _Runs = tensor.place
        return (self._file, runs[0][0]) if len(runs) == 1 else None

    def check(self, tensor: Stored) -> None:
        """Does nothing: the positions were checked when the file was opened, and the format has no checksums."""

    def has_checksum(self, tensor: Stored) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


class _Parser:
    """Parses one object of MessagePack, without reading the elements of arrays."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._position = 0
        self._buffer = b""
        self._buffer_start = 0
        self._made = 0

    def parse(self) -> Any:
        tree = self._object(0)
        if self._position != self._file.size:
            raise _damaged(f"{self._file.size - self._position} bytes after the end of the tree")
        return tree

    def _take(self, count: int) -> bytes:
        """The next bytes."""
        start = self._position - self._buffer_start
        if not 0 <= start <= start + count <= len(self._buffer):
            self._check(count)
            length = min(max(count, _BUFFERED), self._file.size - self._position)
            self._buffer, self._buffer_start, start = bytes(self._file.read(self._position, length)), self._position, 0
        self._position += count
        return self._buffer[start : start + count]

    def _skip(self, count: int) -> None:
        self._check(count)
        self._position += count

    def _check(self, count: int) -> None:
        if count > self._file.size - self._position:
            raise _damaged(f"the end of the file at byte {self._file.size}, where {count} bytes were expected")

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _length(self, width: int) -> int:
        length: int = self._number(_LENGTHS[width])
        return length

    def _object(self, depth: int) -> Any:
        self._made += 1
        if self._made > _MOST or depth > DEEPEST:
            raise UnsupportedError(
                "this MessagePack file has too many objects or levels",
                expected=f"{_MOST} objects and {DEEPEST} levels or fewer",
                remedy="save long lists as arrays",
            )
        code = self._take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0x90:
            return self._map(code & 0x0F, depth)
        if code < 0xA0:
            return self._list(code & 0x0F, depth)
        if code < 0xC0:
            return self._text(code & 0x1F)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            return self._number(_NUMBERS[code])
        read = _BY_CODE.get(code)
        if read is None:
            raise _damaged(f"{code:#04x} at byte {self._position - 1}, which begins no object")
        return read(self, depth)

    def _map(self, length: int, depth: int) -> Any:
        entries: dict[Any, Any] = {}
        for _ in range(length):
            key = self._object(depth + 1)
            if type(key) not in (str, int) or key in entries:
                raise _damaged(f"the key {key!r:.80} of a map, at byte {self._position}")
            entries[key] = self._object(depth + 1)
        return _joined(entries) if _CHUNKED in entries else entries

    def _list(self, length: int, depth: int) -> list[Any]:
        return [self._object(depth + 1) for _ in range(length)]

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise _damaged(f"text that is not UTF-8, at byte {self._position - length}") from None

    def _extension(self, length: int, depth: int) -> Any:
        kind = self._number(">b")
        end = self._position + length
        self._check(length)
        value: Stored | complex
        if kind in (_ARRAY, _SCALAR):
            value = self._array(end, depth)
        elif kind == _COMPLEX:
            parts = self._object(depth + 1)
            if not isinstance(parts, list) or len(parts) != 2 or not all(type(each) in (int, float) for each in parts):
                raise _damaged(f"a complex number of {parts!r:.80}")
            value = complex(*parts)
        else:
            raise UnsupportedError(
                "this MessagePack file holds an object that Flax does not write",
                expected=f"arrays, complex numbers and scalars, which are extensions {_ARRAY} to {_SCALAR}",
                found=f"extension {kind} at byte {self._position}",
                remedy="load the file with the library that wrote it, put its values into the live objects, and save these",
            )
        if self._position != end:
            raise _damaged(f"an extension of {length} bytes with another content, before byte {end}")
        return value

    def _array(self, end: int, depth: int) -> Stored:
        code = self._take(1)[0]
        shape: Any = self._object(depth + 1) if code == 0x93 else None
        if not is_shape(shape, list):
            raise _damaged(f"the shape {shape!r:.80} of an array")
        name = self._object(depth + 1)
        name = name.decode(errors="replace") if isinstance(name, bytes) else name
        code = self._take(1)[0]
        width = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(code, 0)
        if not width:
            raise _damaged(f"an array without elements, at byte {self._position}")
        length = self._length(width)
        try:
            dtype = DType.of(str(name))
        except (UnsupportedError, TypeError):
            dtype = None
        if dtype is None or dtype.is_bytes:
            raise UnsupportedError(
                "milepost cannot read arrays of this element type from files of Flax",
                expected="a type of numbers or bools",
                found=f"{name!r:.80}",
                remedy="load the file with flax.serialization.msgpack_restore(data), and save the tree with milepost",
            )
        spec = TensorSpec(dtype, tuple(shape))
        if length != spec.nbytes or self._position + length != end:
            raise _damaged(f"{length} bytes for an array of {spec}, at byte {self._position}")
        self._skip(length)
        return Stored(spec, ((self._position - length, length),))


def _bytes(width: int) -> Callable[[_Parser, int], Any]:
    return lambda parser, depth: parser._take(parser._length(width))


def _text(width: int) -> Callable[[_Parser, int], Any]:
    return lambda parser, depth: parser._text(parser._length(width))


def _list(width: int) -> Callable[[_Parser, int], Any]:
    return lambda parser, depth: parser._list(parser._length(width), depth)


def _map(width: int) -> Callable[[_Parser, int], Any]:
    return lambda parser, depth: parser._map(parser._length(width), depth)


def _extension(width: int) -> Callable[[_Parser, int], Any]:
    return lambda parser, depth: parser._extension(parser._length(width), depth)


def _fixed_extension(length: int) -> Callable[[_Parser, int], Any]:
    return lambda parser, depth: parser._extension(length, depth)


_BY_CODE: Final[dict[int, Callable[[_Parser, int], Any]]] = {
    **{0xC4 + number: _bytes(width) for number, width in enumerate(_LENGTHS)},
    **{0xC7 + number: _extension(width) for number, width in enumerate(_LENGTHS)},
    **{0xD4 + number: _fixed_extension(1 << number) for number in range(5)},
    **{0xD9 + number: _text(width) for number, width in enumerate(_LENGTHS)},
    0xDC: _list(2),
    0xDD: _list(4),
    0xDE: _map(2),
    0xDF: _map(4),
}
"""By the first byte of an object, the function that parses it."""


def _joined(parts: dict[Any, Any]) -> Stored:
    """The array that a map describes by its chunks."""
    shape, chunks = parts.get("shape"), parts.get("chunks")
    if not isinstance(shape, dict) or not isinstance(chunks, dict) or not chunks:
        raise _damaged("a chunked array without its shape or its chunks")
    lengths: list[Any] = [shape.get(str(number)) for number in range(len(shape))]
    stored: list[Any] = [chunks.get(str(number)) for number in range(len(chunks))]
    if not is_shape(lengths, list) or not all(isinstance(each, Stored) for each in stored):
        raise _damaged("a chunked array whose chunks are not numbered from 0")
    dtype = stored[0].spec.dtype
    spec = TensorSpec(dtype, tuple(lengths))
    if any(each.spec.dtype != dtype for each in stored) or sum(each.spec.nbytes for each in stored) != spec.nbytes:
        raise _damaged(f"chunks that do not make up an array of {spec}")
    return Stored(spec, tuple(run for each in stored for run in each.place))


def _damaged(found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "this file begins like a file of Flax, but it is damaged or of another kind",
        expected="one tree in MessagePack, as flax.serialization.to_bytes() writes it",
        found=found,
        remedy="copy or download the file again; if another library wrote it, load it with that library",
    )

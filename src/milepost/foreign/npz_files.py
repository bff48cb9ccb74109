"""Reads ``.npz`` files, as ``numpy.savez`` and ``numpy.savez_compressed`` write them: zip archives of ``.npy`` files.

::

    archive  := {<name>.npy}                  stored, or compressed by Deflate; a name may be a path
    .npy     := 93 "NUMPY"  version:u8^2  length  header  elements
    length   := u16 in version 1, u32 in versions 2 and 3; little-endian
    header   := {'descr': element type, 'fortran_order': bool, 'shape': tuple}         as Python writes it

Arrays of objects are pickled data, which is named and never loaded. Arrays of other element types than numbers, truth values and text, such
as dates, are named and not read. Limits: a header may have 64 KiB, which is parsed as a literal; an array
takes at most about 1,100 times the bytes that the archive has for it, which Deflate cannot exceed; and `opening` limits all arrays together.
Source: NumPy 2.4, ``numpy/lib/_format_impl.py``; `zip_directory` describes the archive.
"""

from __future__ import annotations

import ast
import functools
import math
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.errors import CorruptCheckpointError, MilepostError
from milepost.foreign import zip_content
from milepost.foreign.kinds import first_record
from milepost.foreign.near_reads import NearReads
from milepost.foreign.opaque import OBJECT_ARRAY, Opaque, unread_array
from milepost.foreign.shapes import are_counts
from milepost.foreign.stored import Stored
from milepost.foreign.zip_directory import STORED, Archive, ZipRecord, starts_of
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSpec

SUFFIX: Final = ".npz"
_ENDING: Final = ".npy"
_WHAT: Final = "the .npz file"
_MAGIC: Final = b"\x93NUMPY"
_LONGEST: Final = 64 << 10
"""The most bytes of a header."""
_MOST_EXPANDED: Final = 1100
_SMALL: Final = 1 << 20
"""The most bytes of an array to which this limit does not apply."""
_DEEPEST: Final = 90
_USUAL: Final = 128
"""The bytes that are looked at first for a header. NumPy writes as many, if the shape has fewer than some ten dimensions."""
_BLOCK: Final = 4096
"""Bytes of the file that are read at once for headers. A system reads as many from a disk for one header."""
_MOST_FORMS: Final = 256
"""How many headers are remembered. Most arrays of a file have one of a few."""


class Place(NamedTuple):
    """The place of an array in the archive.

    Attributes:
        record: Its record in the archive.
        start: The position of the record's bytes in the file.
        header: The length of the header.
        swapped: Whether a machine of the other byte order wrote it.
        fortran: Whether the first index changes fastest.
    """

    record: ZipRecord
    start: int
    header: int
    swapped: bool
    fortran: bool


def looks_like(archive: Archive) -> bool:
    """Whether a file is an archive of arrays, or begins like one and is cut off. An archive of nothing must have the name of one."""
    if archive.is_empty:
        return archive.file.path.endswith(SUFFIX)
    if not archive.looks_like_one:
        return False
    try:
        names = archive.records
    except CorruptCheckpointError:
        return first_record(archive.file).endswith(_ENDING)
    return bool(names) and all(name.endswith(_ENDING) for name in names)


class NpzFile:
    """An open archive of arrays; see `ForeignFile`.

    Args:
        archive: The file, which is closed if it cannot be read.
    """

    dotted = False
    kind = ""
    library = "NumPy"

    def __init__(self, archive: Archive) -> None:
        file = archive.file
        self.path = file.path
        self.paths = [file.path]
        self._file = file
        self._checked: set[int] = set()
        self._near = NearReads(file, _BLOCK)
        self._small = NearReads(file, zip_content.SMALL)
        self._form = functools.lru_cache(maxsize=_MOST_FORMS)(_form)
        self._known: dict[bytes, tuple[_Form, int]] = {}
        try:
            records = _records(archive)
            starts = starts_of(records.values(), file)
            arrays = {}
            for (name, record), start in zip(records.items(), starts, strict=True):
                key = name.removesuffix(_ENDING)
                try:
                    arrays[key] = self._array(record, start)
                except MilepostError as error:
                    raise error.with_context(key=key) from None
            self.tree = _tree(arrays)
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None

    def read_into(self, tensor: Stored, destination: Array) -> None:
        place: Place = tensor.place
        if not destination.size:
            return
        shape = tensor.spec.shape[::-1] if place.fortran else tensor.spec.shape
        target = np.empty(shape, destination.dtype) if place.fortran else destination
        self._read(place, bytes_of(target))
        if place.swapped:
            swap_bytes(bytes_of(target), tensor.spec.dtype)
        if place.fortran:
            destination[...] = target.T

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        place: Place = tensor.place
        is_run = place.record.method == STORED and not place.swapped and not place.fortran
        return (self._file, place.start + place.header) if is_run else None

    def check(self, tensor: Stored) -> None:
        """Verifies the checksum of the tensor's record."""
        place: Place = tensor.place
        if place.start in self._checked:
            return
        zip_content.check(self._file, place.record, place.start, _WHAT, self._small)
        self._checked.add(place.start)

    def check_rest(self) -> None:
        zip_content.check_others(self._file, self._checked, _WHAT)

    def has_checksum(self, tensor: Stored) -> bool:
        return True

    def close(self) -> None:
        self._file.close()

    def _array(self, record: ZipRecord, start: int) -> Any:
        zip_content.check_readable(record, start, self._file, _WHAT)
        if record.size > max(_SMALL, _MOST_EXPANDED * record.stored):
            raise CorruptCheckpointError(
                "an array would take more memory than its compressed bytes can stand for",
                expected=f"at most {_MOST_EXPANDED} times {record.stored} bytes",
                found=record.size,
            )
        form, header = self._beginning(record, start)
        if form.dtype.hasobject:
            return Opaque(OBJECT_ARRAY, sealed=True)
        if form.nbytes != record.size - header:
            raise CorruptCheckpointError(
                "a .npy header does not fit the bytes that follow it",
                expected=f"{form.nbytes} bytes for {form.dtype} of shape {form.shape}",
                found=record.size - header,
            )
        if form.spec is not None:
            return Stored(form.spec, Place(record, start, header, form.swapped, form.fortran))
        if form.dtype.kind not in "SU":
            return unread_array(form.dtype)
        zip_content.check(self._file, record, start, _WHAT)
        self._checked.add(start)
        return self._texts(Place(record, start, header, swapped=False, fortran=form.fortran), form.dtype, form.shape)

    def _beginning(self, record: ZipRecord, start: int) -> tuple[_Form, int]:
        """What the header of an array says, and where the elements begin."""
        most = min(record.size, _LONGEST + 16)
        if record.method != STORED:
            beginning = b""
            for chunk in zip_content.content(self._file, record, start, _WHAT):
                beginning += bytes(chunk[: _LONGEST + 16])
                if len(beginning) >= most:
                    break
            return self._described(beginning)
        beginning = bytes(self._near.read(start, min(most, _USUAL)))
        known = self._known.get(beginning)
        if known is None:
            is_whole = len(beginning) == most or _end_of_header(beginning) <= len(beginning)
            known = self._described(beginning if is_whole else bytes(self._near.read(start, most)))
            if known[1] == len(beginning) and len(self._known) < _MOST_FORMS:
                self._known[beginning] = known
        return known

    def _described(self, beginning: bytes) -> tuple[_Form, int]:
        header, end = _header(beginning)
        return self._form(header), end

    def _texts(self, place: Place, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """An array of text. Files have few and small ones, so it is read at once."""
        data = np.empty(place.record.size - place.header, np.uint8)
        self._read(place, data)
        if not dtype.itemsize:
            return np.full(shape, b"", object)
        array = data.view(dtype).reshape(shape, order="F" if place.fortran else "C")
        texts = np.empty(shape, object)
        for index, each in np.ndenumerate(array):
            texts[index] = each.encode(errors="surrogatepass") if isinstance(each, str) else bytes(each)
        return texts

    def _read(self, place: Place, target: Array) -> None:
        """Fills bytes with the elements as they are in the file."""
        if place.record.method == STORED:
            self._file.read_into(place.start + place.header, target)
            return
        position = -place.header
        for chunk in zip_content.content(self._file, place.record, place.start, _WHAT):
            part = np.frombuffer(chunk, np.uint8)[max(-position, 0) :]
            begin = max(position, 0)
            target[begin : begin + part.size] = part[: target.size - begin]
            position += len(chunk)


def _records(archive: Archive) -> dict[str, ZipRecord]:
    try:
        return archive.records
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            "the .npz file is cut off or damaged: its directory is missing or wrong",
            expected=error.expected,
            found=error.found,
            remedy="copy or download it again",
        ) from None


class _Form(NamedTuple):
    """What arrays of one header have in common.

    Attributes:
        dtype: The element type.
        shape: The shape.
        fortran: Whether the first of several indices changes fastest.
        swapped: Whether a machine of the other byte order wrote them.
        nbytes: The bytes of all elements.
        spec: The element type and shape in milepost; None if it reads no such arrays.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    swapped: bool
    nbytes: int
    spec: TensorSpec | None


def _form(header: bytes) -> _Form:
    dtype, shape, fortran = _parsed(header)
    spec = TensorSpec(DType.of(dtype.newbyteorder("=")), shape) if dtype.kind in "biufc" else None
    return _Form(dtype, shape, fortran and len(shape) > 1, not dtype.isnative, math.prod(shape) * dtype.itemsize, spec)


def _end_of_header(data: bytes) -> int:
    """Where the elements begin; 0 if this is no header."""
    if data[:6] != _MAGIC or len(data) < 12 or data[6] not in (1, 2, 3):
        return 0
    width = 2 if data[6] == 1 else 4
    return 8 + width + int.from_bytes(data[8 : 8 + width], "little")


def _header(data: bytes) -> tuple[bytes, int]:
    """The header of a ``.npy`` file, and where the elements begin."""
    end = _end_of_header(data)
    if not end:
        raise CorruptCheckpointError("a record of the .npz file is not a .npy file", found=data[:8].hex(" "))
    begin = 10 if data[6] == 1 else 12
    length = end - begin
    if length > _LONGEST or end > len(data):
        raise CorruptCheckpointError(
            "a .npy header is cut off, or too long", expected=f"at most {_LONGEST} bytes", found=length
        )
    return data[begin:end], end


def _parsed(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        found = ast.literal_eval(header.decode("utf-8").strip())
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(found["descr"])
        shape, fortran = found["shape"], found["fortran_order"]
    except (ValueError, TypeError, SyntaxError, KeyError, MemoryError, RecursionError, AttributeError):
        raise CorruptCheckpointError("this is not the header of a .npy file", found=f"{header!r:.80}") from None
    if not are_counts(shape, tuple, below=1 << 63) or not isinstance(fortran, bool):
        raise CorruptCheckpointError("this is not the header of a .npy file", found=f"{header!r:.80}")
    return dtype, shape, fortran


def _tree(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays as nested dicts, by the levels of their names. If one array would be below another, they are one dict by whole names."""
    if not any("/" in name for name in arrays):
        return arrays
    root: dict[str, Any] = {}
    levels = {"": root}
    for name, each in arrays.items():
        above, slash, last = name.rpartition("/")
        level = levels.get(above)
        if level is None:
            level = _level(levels, above)
        if level is None or last in level or not last or (slash and not above):
            return arrays
        level[last] = each
    return root


def _level(levels: dict[str, dict[str, Any]], path: str) -> dict[str, Any] | None:
    """Makes the dict at a path, and those above it. None if this is no path, or an array has it."""
    steps = path.split("/")
    if not all(steps) or len(steps) >= _DEEPEST:
        return None
    level = levels[""]
    for count, step in enumerate(steps, 1):
        above, level_path = level, "/".join(steps[:count])
        if level_path not in levels:
            if step in above:
                return None
            above[step] = levels[level_path] = {}
        level = levels[level_path]
    return level

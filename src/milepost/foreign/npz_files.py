"""Reads ``.npz`` files, as ``numpy.savez`` and ``numpy.savez_compressed`` write them: zip archives of ``.npy`` files.

::

    archive  := {<name>.npy}                  stored, or compressed by Deflate; a name may be a path
    .npy     := 93 "NUMPY"  version:u8^2  length  header  elements
    length   := u16 in version 1, u32 in versions 2 and 3; little-endian
    header   := {'descr': element type, 'fortran_order': bool, 'shape': tuple}         as Python writes it

Arrays of objects are pickled data, which is named and never loaded. Arrays of other element types than numbers, truth values and text, such
as dates, are named and not read. Limits: a header may have 64 KiB, which is parsed as a literal; an array
takes at most about 1,100 times the bytes that the archive has for it, which Deflate cannot exceed; and `opening` limits all arrays together.
Text becomes objects when the file is opened: those of all arrays take at most 64 MiB and what their bytes in the archive allow, 60 times as many,
or 1,032 times if they are compressed.
Source: NumPy 2.4, ``numpy/lib/_format_impl.py``; `zip_directory` describes the archive.
"""

from __future__ import annotations

import ast
import functools
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import methodcaller
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.catalogue import Catalogue, numbered
from milepost.bundle.memory import Array, bytes_of, object_array, swap_bytes
from milepost.coding.depth import DEEPEST
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign import zip_content
from milepost.foreign.kinds import first_record
from milepost.foreign.near_reads import NearReads, read_rows
from milepost.foreign.opaque import OBJECT_ARRAY, Opaque, unread_array
from milepost.foreign.shapes import are_counts
from milepost.foreign.stored import Stored
from milepost.foreign.zip_directory import STORED, Archive, ZipRecord, starts_of
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSpec
from milepost.tensor.numpy_types import numpy_type

SUFFIX: Final = ".npz"
_ENDING: Final = ".npy"
_WHAT: Final = "the .npz file"
_MAGIC: Final = b"\x93NUMPY"
_WITH_UTF8: Final = 3
"""The version of headers that are in UTF-8. Those of earlier ones are in Latin-1."""
_LONGEST: Final = 64 << 10
"""The most bytes of a header."""
_MOST_EXPANDED: Final = 1100
_SMALL: Final = 1 << 20
"""The most bytes of an array to which this limit does not apply."""
_USUAL: Final = 128
"""The bytes before the elements that NumPy writes, if the shape has fewer than some ten dimensions. As many are looked at first."""
_BLOCK: Final = 4096
"""Bytes of the file that are read at once for headers. A system reads as many from a disk for one header."""
_MOST_FORMS: Final = 256
"""How many headers are remembered. Most arrays of a file have one of a few."""


class _Form(NamedTuple):
    """What arrays with the same header have in common.

    Attributes:
        length: The bytes before the elements.
        crc: The CRC-32 of these bytes.
        dtype: The element type.
        shape: The shape.
        fortran: Whether the first of several indices changes fastest.
        swapped: Whether a machine of the other byte order wrote them.
        nbytes: The bytes of all elements.
        spec: The element type and shape in milepost; None if it reads no such arrays.
    """

    length: int
    crc: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    swapped: bool
    nbytes: int
    spec: TensorSpec | None

    @property
    def is_as_in_memory(self) -> bool:
        """Whether the elements are in the archive as in memory, if it is not compressed."""
        return not self.swapped and not self.fortran


class ArchivedArray(NamedTuple):
    """The place of an array in the archive.

    Attributes:
        record: Its record in the archive.
        start: The position of the record's bytes in the file.
        form: What the header says.
    """

    record: ZipRecord
    start: int
    form: _Form

    @property
    def is_run(self) -> bool:
        """Whether the elements are in the file as in memory."""
        return self.record.method == STORED and self.form.is_as_in_memory


class _Alike(NamedTuple):
    """Arrays of numbers that are not compressed and have headers of the usual length, in columns.

    Attributes:
        records: Their records, by name.
        starts: The position of the record's bytes in the file, for each array.
        forms: What the headers say that occur.
        specs: The element type and shape of each of ``forms``.
        form: For each array, which of ``forms`` is its own.
    """

    records: Mapping[str, ZipRecord]
    starts: Column
    forms: list[_Form]
    specs: list[TensorSpec]
    form: Column


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
    return bool(names) and all(map(methodcaller("endswith", _ENDING), names))


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
        self._room = zip_content.TextBudget()
        self._near = NearReads(file, _BLOCK)
        self._small = NearReads(file, zip_content.SMALL)
        self._form = functools.lru_cache(maxsize=_MOST_FORMS)(_form)
        try:
            records = {name.removesuffix(_ENDING): record for name, record in _records(archive).items()}
            starts = starts_of(records.values(), file)
            self._alike = self._all_alike(records, starts)
            self._others = {} if self._alike is not None else self._one_by_one(records, starts)
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None

    @cached_property
    def tree(self) -> dict[str, Any]:
        return _tree(self.tensors() if self._alike is not None else self._others)

    def tensors(self) -> dict[str, Stored]:
        return self._tensors

    @cached_property
    def _tensors(self) -> dict[str, Stored]:
        alike = self._alike
        if alike is None:
            return {name: value for name, value in self._others.items() if isinstance(value, Stored)}
        columns = alike.starts.tolist(), alike.form.tolist()
        return {
            name: Stored(alike.specs[form], ArchivedArray(record, start, alike.forms[form]))
            for (name, record), start, form in zip(alike.records.items(), *columns, strict=True)
        }

    def listing(self) -> Catalogue | None:
        alike = self._alike
        if alike is None:
            return None
        is_run, before = (
            np.array(column)[alike.form]
            for column in ([form.is_as_in_memory for form in alike.forms], [form.crc for form in alike.forms])
        )
        crc = [record.crc for record in alike.records.values()]
        return Catalogue.of(
            [*alike.records],
            alike.specs,
            alike.form,
            file=self._file,
            start=alike.starts + _USUAL,
            checksum=crc,
            before=before,
            is_run=is_run,
        )._replace(
            swapped=[
                key for key, form in zip(alike.records, alike.form.tolist(), strict=True) if alike.forms[form].swapped
            ]
        )

    def _one_by_one(self, records: Mapping[str, ZipRecord], starts: Sequence[int]) -> dict[str, Any]:
        arrays = {}
        for (name, record), start in zip(records.items(), starts, strict=True):
            try:
                arrays[name] = self._array(record, start)
            except MilepostError as error:
                raise error.with_context(key=name) from None
        return arrays

    def read_into(self, tensor: Stored, destination: Array) -> None:
        archived: ArchivedArray = tensor.place
        if not destination.size:
            return
        shape = tensor.spec.shape[::-1] if archived.form.fortran else tensor.spec.shape
        target = np.empty(shape, destination.dtype) if archived.form.fortran else destination
        self._read(archived, bytes_of(target))
        if archived.form.swapped:
            swap_bytes(bytes_of(target), tensor.spec.dtype)
        if archived.form.fortran:
            destination[...] = target.T

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        archived: ArchivedArray = tensor.place
        return (self._file, archived.start + archived.form.length) if archived.is_run else None

    def catalogue(self, tensors: Mapping[str, Stored]) -> Catalogue:
        specs, spec = numbered(tensor.spec for tensor in tensors.values())
        arrays: list[ArchivedArray] = [tensor.place for tensor in tensors.values()]
        return Catalogue.of(
            [*tensors],
            specs,
            spec,
            file=self._file,
            start=[archived.start + archived.form.length for archived in arrays],
            checksum=[archived.record.crc for archived in arrays],
            before=[archived.form.crc for archived in arrays],
            is_run=[archived.is_run for archived in arrays],
        )._replace(swapped=[key for key, archived in zip(tensors, arrays, strict=True) if archived.form.swapped])

    def check(self, tensor: Stored) -> None:
        """Verifies the checksum of the tensor's record."""
        archived: ArchivedArray = tensor.place
        if archived.start in self._checked:
            return
        zip_content.check(self._file, archived.record, archived.start, _WHAT, self._small)
        self._checked.add(archived.start)

    def check_rest(self) -> None:
        zip_content.check_others(self._file, self._checked, _WHAT)

    def has_checksum(self, tensor: Stored) -> bool:
        return True

    def close(self) -> None:
        self._file.close()

    def _all_alike(self, records: Mapping[str, ZipRecord], starts: Sequence[int]) -> _Alike | None:
        """The arrays in columns, which takes a fraction of the time. None if one of them is unusual, or anything is wrong."""
        if not records:
            return None
        at = np.array(starts, np.int64)
        _, sizes, _, _, methods, are_encrypted = zip(*records.values(), strict=True)
        if {*methods} != {STORED} or any(are_encrypted) or min(sizes) < _USUAL:
            return None
        size = np.array(sizes, np.int64)
        if (at + size > self._file.size).any():
            return None
        data = read_rows(self._file, at, _USUAL).tobytes()
        beginnings = [data[offset : offset + _USUAL] for offset in range(0, len(data), _USUAL)]
        numbers = {each: number for number, each in enumerate(dict.fromkeys(beginnings))}
        forms: list[_Form] = []
        specs: list[TensorSpec] = []
        for beginning in numbers:
            if _end_of_header(beginning) != _USUAL:
                return None
            try:
                forms.append(_form(beginning))
            except CorruptCheckpointError:
                return None
            specs += [spec for spec in [forms[-1].spec] if spec is not None]
        form = np.array([*map(numbers.__getitem__, beginnings)], np.int64)
        if len(specs) < len(forms) or max(each.nbytes for each in forms) > self._file.size:
            return None
        if (np.array([each.nbytes for each in forms], np.int64)[form] != size - _USUAL).any():
            return None
        return _Alike(records, at, forms, specs, form)

    def _array(self, record: ZipRecord, start: int) -> Any:
        zip_content.check_readable(record, start, self._file, _WHAT)
        if record.size > max(_SMALL, _MOST_EXPANDED * record.stored):
            raise CorruptCheckpointError(
                "an array would take more memory than its compressed bytes can stand for",
                expected=f"at most {_MOST_EXPANDED} times {record.stored} bytes",
                found=record.size,
            )
        form = self._form(_before_elements(self._beginning(record, start)))
        if form.dtype.hasobject:
            return Opaque(OBJECT_ARRAY, sealed=True)
        if form.nbytes != record.size - form.length:
            raise CorruptCheckpointError(
                "a .npy header does not fit the bytes that follow it",
                expected=f"{form.nbytes} bytes for {form.dtype} of shape {form.shape}",
                found=record.size - form.length,
            )
        archived = ArchivedArray(record, start, form)
        if form.spec is not None:
            return Stored(form.spec, archived)
        if form.dtype.kind not in "SU":
            return unread_array(form.dtype)
        count = math.prod(form.shape)
        self._room.take(record, count, count * form.dtype.itemsize)
        zip_content.check(self._file, record, start, _WHAT)
        self._checked.add(start)
        return self._texts(archived)

    def _beginning(self, record: ZipRecord, start: int) -> bytes:
        """The first bytes of an array, its header among them."""
        most = min(record.size, _LONGEST + 16)
        if record.method != STORED:
            beginning = b""
            for chunk in zip_content.content(self._file, record, start, _WHAT):
                beginning += bytes(chunk[: _LONGEST + 16])
                if len(beginning) >= most:
                    break
            return beginning
        beginning = bytes(self._near.read(start, min(most, _USUAL)))
        is_whole = len(beginning) == most or _end_of_header(beginning) <= len(beginning)
        return beginning if is_whole else bytes(self._near.read(start, most))

    def _texts(self, archived: ArchivedArray) -> Array:
        """An array of text. Files have few and small ones, so it is read at once."""
        form = archived.form
        data = np.empty(form.nbytes, np.uint8)
        self._read(archived, data)
        if form.dtype.kind == "U":
            characters = data.view(np.dtype("u4").newbyteorder(form.dtype.byteorder))
            if (characters > sys.maxunicode).any():  # NumPy raises a SystemError, or returns other text
                raise CorruptCheckpointError(
                    "an array of text has a character that is none",
                    expected=f"at most {sys.maxunicode:#x}",
                    found=f"{characters.max():#x}",
                )
        elements = data.view(form.dtype).tolist() if form.dtype.itemsize else [b""] * math.prod(form.shape)
        texts = [each.encode(errors="surrogatepass") if isinstance(each, str) else each for each in elements]
        return object_array(texts, form.shape[::-1]).T if form.fortran else object_array(texts, form.shape)

    def _read(self, archived: ArchivedArray, target: Array) -> None:
        """Fills bytes with the elements as they are in the file."""
        if archived.record.method == STORED:
            self._file.read_into(archived.start + archived.form.length, target)
            return
        position = -archived.form.length
        for chunk in zip_content.content(self._file, archived.record, archived.start, _WHAT):
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


def _form(beginning: bytes) -> _Form:
    """What the bytes before the elements of an array say."""
    dtype, shape, fortran = _parsed(
        beginning[10 if beginning[6] == 1 else 12 :], "utf-8" if beginning[6] == _WITH_UTF8 else "latin-1"
    )
    spec = _spec(dtype, shape)
    nbytes = math.prod(shape) * dtype.itemsize
    is_fortran = fortran and len(shape) > 1
    is_swapped = (
        not dtype.isnative and dtype.kind != "V"
    )  # the byte order of each field is part of the type of a record
    return _Form(len(beginning), zlib.crc32(beginning), dtype, shape, is_fortran, is_swapped, nbytes, spec)


def _spec(dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorSpec | None:
    """The element type and shape of an array; None if its elements are not numbers, dates, records or bytes of one width."""
    if dtype.kind not in "biufcmMV":
        return None
    try:
        return TensorSpec(DType.of(dtype), shape)
    except UnsupportedError:
        return None


def _end_of_header(data: bytes) -> int:
    """Where the elements begin; 0 if this is no header."""
    if data[:6] != _MAGIC or len(data) < 12 or data[6] not in (1, 2, 3):
        return 0
    width = 2 if data[6] == 1 else 4
    return 8 + width + int.from_bytes(data[8 : 8 + width], "little")


def _before_elements(data: bytes) -> bytes:
    """The bytes of a ``.npy`` file before its elements."""
    end = _end_of_header(data)
    if not end:
        raise CorruptCheckpointError("a record of the .npz file is not a .npy file", found=data[:8].hex(" "))
    length = end - (10 if data[6] == 1 else 12)
    if length > _LONGEST or end > len(data):
        raise CorruptCheckpointError(
            "a .npy header is cut off, or too long", expected=f"at most {_LONGEST} bytes", found=length
        )
    return data[:end]


def _parsed(header: bytes, encoding: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        fields = ast.literal_eval(header.decode(encoding).strip())
        dtype: np.dtype[Any] = numpy_type(fields["descr"])
        shape, fortran = fields["shape"], fields["fortran_order"]
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
    for name, array in arrays.items():
        above, slash, last = name.rpartition("/")
        level = levels.get(above)
        if level is None:
            level = _level(levels, above)
        if level is None or last in level or not last or (slash and not above):
            return arrays
        level[last] = array
    return root


def _level(levels: dict[str, dict[str, Any]], path: str) -> dict[str, Any] | None:
    """Makes the dict at a path, and those above it. None if this is no path, or an array has it."""
    steps = path.split("/")
    if not all(steps) or len(steps) >= DEEPEST:
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

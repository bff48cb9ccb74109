"""Reads safetensors files.

::

    file    := length of the header:u64  header  data
    header  := JSON: {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
                      "__metadata__": {text: text}}
    index   := JSON: {"weight_map": {name: file name}, ...}

Offsets count from the beginning of the data. There the tensors follow each other without gaps or overlaps, row-major and
little-endian. If two names had one tensor, Hugging Face's ``save_model`` leaves out one name and records ``{left out: kept}`` in the
metadata. The format has no checksums. Limits: a header may have 100 MB, by the format's own rule, within the limits of `json_data`;
a tensor may have 254 dimensions. `shards` reads the index of a model in several files. Source: the safetensors 0.5 format
description.
"""

from __future__ import annotations

import json
import re
import reprlib
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.catalogue import Catalogue, numbered
from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.coding.json_data import parse_object
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.shapes import is_shape, pairs_of_counts
from milepost.foreign.stored import Stored
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSpec

SUFFIX: Final = ".safetensors"

_LENGTH: Final = 8
LONGEST: Final = 100_000_000
"""The most bytes of a header, by the format's own rule."""
_MOST_DIMENSIONS: Final = 254
_MOST: Final = 1 << 63
"""Lengths and positions are less."""
METADATA: Final = "__metadata__"
"""The name in the header under which metadata is."""
_WHAT: Final = "the header of the safetensors file"
_USUAL_METADATA: Final = re.compile(rf'\{{"{METADATA}":(\{{(?:"(?:[^"\\]|\\.)*+"[:,]?)*+\}})', re.DOTALL)
"""The beginning of a header with metadata."""
_USUAL: Final = re.compile(
    r',"([^"\\\x00-\x1f]*)":\{("dtype":"[A-Z0-9_]+","shape":\[[0-9,]*\])'
    r',"data_offsets":\[(0|[1-9][0-9]{0,17}),(0|[1-9][0-9]{0,17})\]\}'
)
"""A comma and the description of a tensor, in the order and without the spaces that the library safetensors writes."""
_AROUND: Final = len(',"":{,"data_offsets":[,]}')
"""The characters of one that are in none of its groups."""
DTYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
PAIRS: Final = {"F4": "float4_e2m1fn_x2"}
"""Element types of half a byte. Two elements next to each other are one of these of PyTorch."""


def looks_like(file: ReadableFile) -> bool:
    """Whether a file begins like a safetensors file."""
    if file.size <= _LENGTH + 1:
        return False
    start = file.read(0, _LENGTH + 1)
    return int.from_bytes(start[:_LENGTH], "little") <= min(file.size - _LENGTH, LONGEST) and start[-1:] == b"{"


class SafetensorsFile:
    """An open safetensors file; see `ForeignFile`."""

    dotted = True
    kind = "torch"
    library = "safetensors"

    def __init__(self, file: ReadableFile) -> None:
        self.path = file.path
        self.paths = [file.path]
        self._file = file
        try:
            header, self._start = _header(file)
            columns = self._found = _in_usual_form(header) or _in_any_form(header)
            _check_lengths(columns)
            _check_order(columns, self._start, file.size)
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None
        self.metadata: dict[str, Any] = dict(columns.metadata)
        names = {*columns.names} if columns.metadata else frozenset[str]()
        self._left_out = {name: kept for name, kept in columns.metadata.items() if kept in names and name not in names}

    @cached_property
    def tree(self) -> dict[str, Stored]:
        columns = self._found
        kinds, starts = map(columns.kinds.__getitem__, columns.kind.tolist()), (columns.begins + self._start).tolist()
        tensors = {name: Stored(spec, start) for name, spec, start in zip(columns.names, kinds, starts, strict=True)}
        return tensors | {name: tensors[kept] for name, kept in self._left_out.items()}

    def tensors(self) -> dict[str, Stored]:
        return self.tree

    def listing(self) -> Catalogue:
        columns = self._found
        kind, begins = columns.kind, columns.begins
        if self._left_out:
            positions = {name: position for position, name in enumerate(columns.names)}
            kept = [positions[name] for name in self._left_out.values()]
            kind, begins = (np.concatenate((column, column[kept])) for column in (kind, begins))
        names, start = [*columns.names, *self._left_out], begins + self._start
        return Catalogue.of(names, columns.kinds, kind, file=self._file, start=start, is_run=sys.byteorder == "little")

    def read_into(self, tensor: Stored, destination: Array) -> None:
        if not tensor.spec.nbytes:
            return
        target = bytes_of(destination)
        self._file.read_into(tensor.place, target)
        if sys.byteorder == "big":
            swap_bytes(target, tensor.spec.dtype)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return None if sys.byteorder == "big" else (self._file, tensor.place)

    def catalogue(self, tensors: Mapping[str, Stored]) -> Catalogue:
        specs, spec = numbered(tensor.spec for tensor in tensors.values())
        start = [tensor.place for tensor in tensors.values()]
        return Catalogue.of([*tensors], specs, spec, file=self._file, start=start, is_run=sys.byteorder == "little")

    def check(self, tensor: Stored) -> None:
        """Does nothing: the header was checked when the file was opened, and the format has no checksums."""

    def has_checksum(self, tensor: Stored) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


class _Found(NamedTuple):
    """What a header says. Each column has as many members as there are tensors.

    Attributes:
        names: The names.
        kinds: Every element type and shape that occurs.
        kind: For each tensor, which of ``kinds`` is its own.
        begins: Its first byte in the data.
        ends: The byte after its last one.
        metadata: The metadata.
    """

    names: Sequence[str]
    kinds: list[TensorSpec]
    kind: Column
    begins: Column
    ends: Column
    metadata: dict[str, str]


def _header(file: ReadableFile) -> tuple[bytes, int]:
    """The header, and the position where the data begins."""
    if file.size < _LENGTH:
        raise CorruptCheckpointError("the safetensors file is truncated", expected="8 bytes or more", found=file.size)
    length = int.from_bytes(file.read(0, _LENGTH), "little")
    most = min(file.size - _LENGTH, LONGEST)
    if length > most:
        raise CorruptCheckpointError(
            "the safetensors file is truncated, or is not a safetensors file: its header would be longer than the file",
            expected=f"a header of at most {most} bytes",
            found=f"{length} bytes",
        )
    return file.read(_LENGTH, length), _LENGTH + length


def _in_usual_form(header: bytes) -> _Found | None:
    """What a header says if it has the form that the library safetensors writes, which is read several times as fast as any JSON.

    Returns:
        None if it has another form, or anything in it is wrong.
    """
    try:
        text = header.decode()
    except UnicodeDecodeError:
        return None
    metadata: dict[str, str] = {}
    beginning = _USUAL_METADATA.match(text)
    if beginning is not None:
        try:
            metadata = parse_object(beginning[1].encode(), _WHAT)
        except MilepostError:
            return None
    body = text[beginning.end() :] if beginning is not None else f",{text[1:]}"
    body = body.rstrip(" ").removesuffix("}")
    matches = _USUAL.findall(body)
    if not text.startswith("{") or len(body) != sum(map(len, chain.from_iterable(matches))) + len(matches) * _AROUND:
        return None
    names, forms, begins, ends = zip(*matches, strict=True) if matches else ((),) * 4
    if len({METADATA, *names}) != len(names) + 1:
        return None  # one that occurs twice
    try:
        meanings = {form: json.loads(f"{{{form}}}") for form in dict.fromkeys(forms)}
    except ValueError:
        return None
    kinds, kind = _kinds(names, forms, meanings)
    first, last = (np.array([*map(int, each)], np.int64) for each in (begins, ends))
    return _Found(names, kinds, kind, first, last, metadata)


def _in_any_form(header: bytes) -> _Found:
    """What a header says."""
    entries = parse_object(header, _WHAT)
    metadata = entries.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptCheckpointError(
            "the metadata of a safetensors file must be text", expected="a dict of text", found=reprlib.repr(metadata)
        )
    names = [*entries]
    forms = []
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            raise CorruptCheckpointError("this is not the description of a tensor", key=name, found=reprlib.repr(entry))
        try:  # a text in which 1 is not taken for true, which equals it, nor a text for a list
            forms.append(f"{entry.get('dtype')!r}{entry.get('shape')!r}")
        except RecursionError:  # lists inside each other, which are no shape
            forms.append("")
    kinds, kind = _kinds(names, forms, dict(zip(forms, entries.values(), strict=True)))
    offsets = [entry.get("data_offsets") for entry in entries.values()]
    pairs_or_index = pairs_of_counts(offsets, below=_MOST)
    if isinstance(pairs_or_index, int):
        raise CorruptCheckpointError(
            "these are not the offsets of a tensor",
            key=names[pairs_or_index],
            expected="[begin, end]",
            found=reprlib.repr(offsets[pairs_or_index]),
        )
    return _Found(names, kinds, kind, pairs_or_index[:, 0], pairs_or_index[:, 1], metadata)


def _kinds(
    names: Sequence[str], forms: Sequence[str], meanings: Mapping[str, Mapping[str, Any]]
) -> tuple[list[TensorSpec], Column]:
    """The specs that occur, and for each tensor which of them is its own.

    Args:
        names: The names of the tensors.
        forms: For each tensor, a text that is the same for those of one element type and shape.
        meanings: What each of these texts stands for, which is checked once.
    """
    kinds = []
    for form, entry in meanings.items():
        try:
            kinds.append(_spec(entry.get("dtype"), entry.get("shape")))
        except MilepostError as error:
            raise error.with_context(key=names[forms.index(form)]) from None
    numbers = dict(zip(meanings, range(len(meanings)), strict=True))
    return kinds, np.array([*map(numbers.__getitem__, forms)], np.int64)


def _spec(dtype: Any, shape: Any) -> TensorSpec:
    if not is_shape(shape, list, longest=_MOST_DIMENSIONS, below=_MOST):
        raise CorruptCheckpointError("this is not the shape of a tensor", found=reprlib.repr(shape))
    if isinstance(dtype, str) and dtype in DTYPES:
        return TensorSpec(DType.of(DTYPES[dtype]), tuple(shape))
    if isinstance(dtype, str) and dtype in PAIRS and shape and not shape[-1] % 2:
        return TensorSpec(DType.of(PAIRS[dtype]), (*shape[:-1], shape[-1] // 2))
    raise UnsupportedError(
        "milepost cannot read this element type of safetensors",
        expected="one of " + ", ".join([*DTYPES, *PAIRS]),
        found=reprlib.repr(dtype),
        remedy="load the file with the library safetensors, convert the tensor, and save it again",
    )


def _check_lengths(columns: _Found) -> None:
    """Checks that the bytes of tensors are as many as their types and shapes need."""
    # no length is as small as the number that stands for a size beyond 64 bits
    sizes = np.array([spec.nbytes if spec.nbytes < _MOST else -_MOST for spec in columns.kinds] or [0], np.int64)
    for position in np.flatnonzero(columns.ends - columns.begins != sizes[columns.kind])[:1].tolist():
        spec = columns.kinds[columns.kind[position]]
        raise CorruptCheckpointError(
            "the offsets of a tensor do not fit its shape",
            key=columns.names[position],
            expected=f"{spec.nbytes} bytes for {spec}",
            found=int(columns.ends[position]) - int(columns.begins[position]),
        )


def _check_order(columns: _Found, start: int, size: int) -> None:
    """Checks that tensors follow each other without gaps, and that the file ends with the last of them."""
    order = np.lexsort((columns.ends, columns.begins))
    begins, expected = columns.begins[order], np.concatenate((np.zeros(1, np.int64), columns.ends[order]))
    for number in np.flatnonzero(begins != expected[:-1])[:1].tolist():
        raise CorruptCheckpointError(
            "tensors of a safetensors file overlap, or leave a gap",
            key=columns.names[order[number]],
            expected=f"a tensor that begins at byte {expected[number]} of the data",
            found=int(begins[number]),
        )
    end = start + int(expected[-1])
    if end != size:
        raise CorruptCheckpointError(
            "the safetensors file is truncated" if end > size else "the safetensors file is longer than its tensors",
            expected=f"{end} bytes",
            found=f"{size} bytes",
        )

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

import reprlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.coding.json_data import parse_object
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.shapes import is_shape, pairs_of_counts
from milepost.foreign.stored import Stored, raw_bytes
from milepost.graph.keys import VARIABLE_VALUE
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
}
_BYTES: Final = {"F8_E8M0": "float8_e8m0fnu"}
"""Element types of one byte that TensorFlow has no number for."""


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
            header, start = _header(file)
            self.tree: dict[str, Stored] = _tensors(header, start, file.size)
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None
        for name, kept in header.get(METADATA, {}).items():
            if kept in self.tree and name not in self.tree:
                self.tree[name] = self.tree[kept]

    def read_into(self, tensor: Stored, destination: Array) -> None:
        if not tensor.spec.nbytes:
            return
        target = bytes_of(destination)
        self._file.read_into(tensor.place, target)
        if sys.byteorder == "big":
            swap_bytes(target, tensor.spec.dtype)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return None if sys.byteorder == "big" else (self._file, tensor.place)

    def check(self, tensor: Stored) -> None:
        """Does nothing: the header was checked when the file was opened, and the format has no checksums."""

    def has_checksum(self, tensor: Stored) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


def _header(file: ReadableFile) -> tuple[dict[str, Any], int]:
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
    header = parse_object(file.read(_LENGTH, length), "the header of the safetensors file")
    metadata = header.get(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptCheckpointError(
            "the metadata of a safetensors file must be text", expected="a dict of text", found=reprlib.repr(metadata)
        )
    return header, _LENGTH + length


def _tensors(header: dict[str, Any], start: int, size: int) -> dict[str, Stored]:
    """The tensors by name. What many have in common, such as a shape, is checked once, and the offsets are checked together."""
    names = [name for name in header if name != METADATA]
    entries = [header[name] for name in names]
    kinds, kind = _kinds(names, entries)
    begins, ends = _offsets(names, entries)
    # no length is as small as the number that stands for a size beyond 64 bits
    sizes = np.array([spec.nbytes if spec.nbytes < _MOST else -_MOST for spec, _ in kinds] or [0], np.int64)[kind]
    for place in np.flatnonzero(ends - begins != sizes)[:1].tolist():
        spec, _ = kinds[kind[place]]
        raise CorruptCheckpointError(
            "the offsets of a tensor do not fit its shape",
            key=names[place],
            expected=f"{spec.nbytes} bytes for {spec}",
            found=int(ends[place]) - int(begins[place]),
        )
    _check_order(names, begins, ends, start, size)
    places = zip(names, kind.tolist(), (begins + start).tolist(), strict=True)
    return {name: Stored(kinds[number][0], place, kinds[number][1]) for name, number, place in places}


def _kinds(names: Sequence[str], entries: Sequence[Any]) -> tuple[list[tuple[TensorSpec, str]], Column]:
    """The specs and local names that occur, and for each tensor which of them is its own."""
    found: list[tuple[TensorSpec, str]] = []
    numbers: dict[str, int] = {}
    kind: list[int] = []
    for name, entry in zip(names, entries, strict=True):
        if not isinstance(entry, dict):
            raise CorruptCheckpointError("this is not the description of a tensor", key=name, found=reprlib.repr(entry))
        dtype, shape = entry.get("dtype"), entry.get("shape")
        try:
            text = f"{dtype!r}{shape!r}"  # in which 1 is not taken for true, which equals it, nor a text for a list
        except RecursionError:  # lists inside each other, which are no shape
            text = ""
        number = numbers.get(text)
        if number is None:
            try:
                found.append(_spec(dtype, shape))
            except MilepostError as error:
                raise error.with_context(key=name) from None
            number = numbers[text] = len(numbers)
        kind.append(number)
    return found, np.array(kind, np.int64)


def _spec(dtype: Any, shape: Any) -> tuple[TensorSpec, str]:
    """The spec and the local name of a tensor."""
    if not is_shape(shape, list, longest=_MOST_DIMENSIONS, below=_MOST):
        raise CorruptCheckpointError("this is not the shape of a tensor", found=reprlib.repr(shape))
    if isinstance(dtype, str) and dtype in DTYPES:
        return TensorSpec(DType.of(DTYPES[dtype]), tuple(shape)), VARIABLE_VALUE
    if isinstance(dtype, str) and dtype in _BYTES:
        return raw_bytes(_BYTES[dtype], 1, tuple(shape))
    raise UnsupportedError(
        "milepost cannot read this element type of safetensors",
        expected="one of " + ", ".join([*DTYPES, *_BYTES]),
        found=reprlib.repr(dtype),
        remedy="load the file with the library safetensors, convert the tensor, and save it again",
    )


def _offsets(names: Sequence[str], entries: Sequence[Any]) -> tuple[Column, Column]:
    """Where each tensor begins and ends in the data."""
    offsets = [entry.get("data_offsets") for entry in entries]
    found = pairs_of_counts(offsets, below=_MOST)
    if isinstance(found, int):
        raise CorruptCheckpointError(
            "these are not the offsets of a tensor",
            key=names[found],
            expected="[begin, end]",
            found=reprlib.repr(offsets[found]),
        )
    return found[:, 0], found[:, 1]


def _check_order(names: Sequence[str], begins: Column, ends: Column, start: int, size: int) -> None:
    """Checks that tensors follow each other without gaps, and that the file ends with the last of them."""
    order = np.lexsort((ends, begins))
    expected = np.concatenate((np.zeros(1, np.int64), ends[order]))
    for number in np.flatnonzero(begins[order] != expected[:-1])[:1].tolist():
        raise CorruptCheckpointError(
            "tensors of a safetensors file overlap, or leave a gap",
            key=names[order[number]],
            expected=f"a tensor that begins at byte {expected[number]} of the data",
            found=int(begins[order[number]]),
        )
    end = start + int(expected[-1])
    if end != size:
        raise CorruptCheckpointError(
            "the safetensors file is truncated" if end > size else "the safetensors file is longer than its tensors",
            expected=f"{end} bytes",
            found=f"{size} bytes",
        )

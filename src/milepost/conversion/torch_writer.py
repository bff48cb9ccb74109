"""Writes files of PyTorch, without PyTorch: a dict as ``torch.save`` writes it. `milepost.foreign.pytorch.archive` describes the archive, and
`milepost.conversion.torch_pickle` writes the dict.

A tensor with several names has one storage, so the names share it again when the file is loaded. The bytes of a storage begin at a multiple of
64, so that PyTorch can map them from the file.
Source: PyTorch 2.13, ``torch/serialization.py``.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Final

from milepost.bundle import BundleReader
from milepost.conversion import divided
from milepost.conversion.chunks import little_endian
from milepost.conversion.plan import Exported
from milepost.conversion.torch_pickle import Pickled
from milepost.conversion.writer import Writer
from milepost.errors import UnsupportedError
from milepost.foreign.pytorch.tensors import DTYPES
from milepost.foreign.zip_directory import LOCAL_HEADER
from milepost.tensor import DType

_FOLDER: Final = "archive"
_ALIGNMENT: Final = 64
_ALWAYS_THE_SAME: Final = (1980, 1, 1, 0, 0, 0)
_ZIP64_EXTRA: Final = 20
"""Bytes that `zipfile` adds to the local header of a large record."""
_LARGE: Final = 1 << 30
"""Records from this size on have the fields of zip64."""
_PADDING: Final = b"FB"
"""The name of the extra field with which PyTorch fills the space before a storage."""


def _accepts(dtype: DType) -> bool:
    return dtype.name in DTYPES


def _write(
    target: str,
    tensors: Sequence[Exported],
    most: int | None,
    reader: BundleReader,
    versions: Mapping[str, int] | None = None,
) -> list[str]:
    return divided.write(target, tensors, most, reader, partial(_write_one, versions=versions or {}))


def _write_one(file: BinaryIO, tensors: Sequence[Exported], reader: BundleReader, versions: Mapping[str, int]) -> None:
    stored = list({tensor.key: tensor for tensor in reversed(tensors) if not tensor.is_state}.values())[::-1]
    pickled = Pickled({tensor.key: number for number, tensor in enumerate(stored)})
    data = pickled.state_dict(tensors, versions)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _record(archive, "data.pkl", [data])
        _record(archive, "byteorder", [b"little"])
        for number, tensor in enumerate(stored):
            chunks = (little_endian(chunk, tensor.spec.dtype) for chunk in tensor.chunks(reader))
            _record(archive, f"data/{number}", chunks, tensor.spec.nbytes)
        for number, array in enumerate(pickled.arrays, len(stored)):
            _record(archive, f"data/{number}", [little_endian(array, DType.of(array))], array.nbytes)
        _record(archive, "version", [b"3\n"])


def _record(archive: zipfile.ZipFile, name: str, chunks: Iterable[bytes], size: int = 0) -> None:
    """Writes a record, whose bytes begin at a multiple of 64."""
    record = zipfile.ZipInfo(f"{_FOLDER}/{name}", _ALWAYS_THE_SAME)
    is_large = size >= _LARGE
    header = LOCAL_HEADER + len(record.filename) + is_large * _ZIP64_EXTRA + 4
    fill = -(archive.start_dir + header) % _ALIGNMENT
    record.extra = _PADDING + struct.pack("<H", fill) + b"Z" * fill
    with archive.open(record, "w", force_zip64=is_large) as part:
        for chunk in chunks:
            part.write(chunk)
    record.extra = b""  # the directory at the end needs no padding


def _problem_of_state(value: Any) -> str | None:
    try:
        Pickled().add(value)
    except UnsupportedError as error:
        return str(error.found)
    return None


WRITER: Final = Writer(
    "torch",
    _accepts,
    divided.paths,
    _write,
    divides=True,
    problem_of_state=_problem_of_state,
    present=divided.present,
)
"""The format."""

"""Writes files of PyTorch, without PyTorch: a dict of tensors as ``torch.save`` writes it. `milepost.foreign.torch_archive` describes the format.

::

    <name>/data.pkl     := PROTO 2  EMPTY_DICT  MARK {name  tensor} SETITEMS  STOP
                         | PROTO 2  hooks  MARK {name  tensor} SETITEMS  EMPTY_DICT "_metadata" versions SETITEM  BUILD  STOP
    versions            := hooks  MARK {name of a module  EMPTY_DICT "version" number SETITEM} SETITEMS
    tensor              := GLOBAL "torch._utils _rebuild_tensor_v2" (or _v3)  MARK storage 0 shape strides False hooks TUPLE REDUCE
    hooks               := GLOBAL "collections OrderedDict" EMPTY_TUPLE REDUCE
    storage             := MARK "storage" GLOBAL "torch FloatStorage" key "cpu" elements TUPLE BINPERSID

The second form is that of a ``state_dict()``, whose versions tell modules how old their state is. A tensor with several names has one storage, so the names share it again when the file is loaded. Types that have no class of storages in PyTorch take ``UntypedStorage``, counted in bytes, and name their type in the call of
``_rebuild_tensor_v3``. The bytes of a storage begin at a multiple of 64, so that PyTorch can map them from the file. Only numbers, text,
tuples and these five names are written, so ``torch.load(weights_only=True)`` accepts the file.
Source: PyTorch 2.13, ``torch/serialization.py``, ``torch/_utils.py``.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import BinaryIO, Final

from milepost.bundle import BundleReader
from milepost.conversion import divided
from milepost.conversion.chunks import little_endian
from milepost.conversion.plan import Exported
from milepost.conversion.writer import Writer
from milepost.foreign.rebuilt import METADATA
from milepost.foreign.torch_tensors import DTYPES, STORAGES, UNTYPED
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
_BATCH: Final = 1000
"""How many items `pickle` adds to a dict at once."""
_CLASSES: Final = {dtype: f"{name}" for name, dtype in STORAGES.items() if name != UNTYPED and not name.startswith("Q")}
"""By element type, the class of storages."""


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
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _record(archive, "data.pkl", [_pickled(tensors, versions)])
        stored = {tensor.key: tensor for tensor in reversed(tensors)}
        _record(archive, "byteorder", [b"little"])
        for key, number in _storages(tensors).items():
            tensor = stored[key]
            chunks = (little_endian(chunk, tensor.spec.dtype) for chunk in tensor.chunks(reader))
            _record(archive, f"data/{number}", chunks, tensor.spec.nbytes)
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


def _storages(tensors: Sequence[Exported]) -> dict[str, int]:
    """The number of the storage of each tensor, by its key. A tensor with several names has one."""
    keys = dict.fromkeys(tensor.key for tensor in tensors)
    return dict(zip(keys, range(len(keys)), strict=True))


def _pickled(tensors: Sequence[Exported], versions: Mapping[str, int]) -> bytes:
    pickled, storages = _Pickled(), _storages(tensors)
    if versions:
        pickled.add_ordered_dict()
    else:
        pickled.add(b"}")
    for start in range(0, len(tensors), _BATCH):
        pickled.add(b"(")
        for tensor in tensors[start : start + _BATCH]:
            pickled.add_text(tensor.name)
            pickled.add_tensor(tensor, str(storages[tensor.key]))
        pickled.add(b"u")
    if versions:
        pickled.add_versions(versions)
    return pickled.finish()


class _Pickled:
    """Pickled data in the making: a dict. Names of classes and functions are written once, and taken from the memo after that."""

    def __init__(self) -> None:
        self._parts = [b"\x80\x02"]
        self._memo: dict[str, int] = {}

    def add(self, data: bytes) -> None:
        self._parts.append(data)

    def add_text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.add(b"X" + struct.pack("<I", len(data)) + data)

    def add_ordered_dict(self) -> None:
        """Adds an empty `OrderedDict`."""
        self._add_name("collections", "OrderedDict")
        self.add(b")R")

    def add_versions(self, versions: Mapping[str, int]) -> None:
        """Adds the attribute of the dict that has the versions of modules."""
        self.add(b"}")
        self.add_text(METADATA)
        self.add_ordered_dict()
        self.add(b"(")
        for name, version in versions.items():
            self.add_text(name)
            self.add(b"}")
            self.add_text("version")
            self._add_number(version)
            self.add(b"s")
        self.add(b"usb")

    def add_tensor(self, tensor: Exported, key: str) -> None:
        """Adds the call that makes a tensor."""
        spec = tensor.spec
        typed = _CLASSES.get(spec.dtype.name)
        self._add_name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self.add(b"((")
        self.add_text("storage")
        self._add_name("torch" if typed else "torch.storage", typed or UNTYPED)
        self.add_text(key)
        self.add_text("cpu")
        self._add_number(spec.nbytes // (spec.dtype.itemsize if typed else 1))
        self.add(b"tQ")
        self._add_number(0)
        self._add_numbers(spec.shape)
        self._add_numbers(_strides(spec.shape))
        self.add(b"\x89")
        self.add_ordered_dict()
        if not typed:
            self._add_name("torch", spec.dtype.name)
        self.add(b"tR")

    def finish(self) -> bytes:
        return b"".join([*self._parts, b"."])

    def _add_name(self, module: str, name: str) -> None:
        full = f"{module}\n{name}\n"
        known = self._memo.get(full)
        if known is not None:
            self.add(b"h" + bytes([known]))
            return
        number = self._memo[full] = len(self._memo)
        self.add(b"c" + full.encode() + b"q" + bytes([number]))

    def _add_number(self, number: int) -> None:
        if number < 1 << 31:
            self.add(b"J" + struct.pack("<i", number))
        else:
            self.add(b"\x8a\x08" + struct.pack("<q", number))

    def _add_numbers(self, numbers: Sequence[int]) -> None:
        self.add(b"(")
        for number in numbers:
            self._add_number(number)
        self.add(b"t")


def _strides(shape: Sequence[int]) -> list[int]:
    """How many elements lie between two neighbours in each dimension, as PyTorch counts them where a dimension is empty, too."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return strides[::-1]


WRITER: Final = Writer(
    "torch",
    _accepts,
    divided.paths,
    _write,
    divides=True,
    has_versions=True,
    present=divided.present,
)
"""The format."""

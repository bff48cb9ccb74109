"""Reads V1 checkpoints, which TensorFlow wrote before version 0.12 and on request ever since.

::

    file := table of  "" -> SavedTensorSlices with meta,  slice key -> SavedTensorSlices with data
    meta := for each tensor of the file: name, shape, type, slices
    data := name, slice, and a TensorProto with the values in the field for their type, without type and shape

`milepost.bundle.format.messages` has the messages, `milepost.bundle.format.slices` the slice keys; a tensor in one piece is the slice that covers it.
Blocks of the table have checksums, tensors have none. A sharded checkpoint is several such files, each with the pieces that it holds.
Source: TensorFlow 1.15, ``tensorflow/core/util/saved_tensor_slice.proto`` and ``tensor_slice_writer.cc``.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Self

import numpy as np

from milepost.bundle.catalogue import UNKNOWN, Catalogue
from milepost.bundle.counting import counter
from milepost.bundle.format.entry import Entry, dtype_of, shape_of
from milepost.bundle.format.messages import SavedTensorSlices
from milepost.bundle.format.slices import Overlap, index_of, overlaps, parse_box, slice_key
from milepost.bundle.interface import CHECKPOINT
from milepost.bundle.memory import Array, new_array, object_array
from milepost.bundle.problems import no_such_key
from milepost.coding.protobuf import parse
from milepost.coding.snappy import MOST_FROM_BYTE
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.storage import ReadableFile, Storage
from milepost.table import TableReader
from milepost.table.block import MAGIC
from milepost.table.reader import BLOCK_LIMIT
from milepost.tensor import DType, TensorSlice, TensorSpec

META_KEY: Final = b""
GRAPH_SUFFIX: Final = ".meta"
"""The ending of the file of a graph, which TensorFlow 1 writes beside a checkpoint."""
VERSION: Final = 1
"""The number that TensorFlow calls ``TF_CHECKPOINT_VERSION``."""

_COMPLEX: Final = "complex64", "complex128"
_HALVES: Final = "float16", "bfloat16"
_FIELDS: Final = {
    "float32": "float_val",
    "float64": "double_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "string": "string_val",
    **dict.fromkeys(_HALVES, "half_val"),
    **dict.fromkeys(["int8", "int16", "int32", "uint8", "uint16"], "int_val"),
    **dict.fromkeys(["qint8", "qint16", "qint32", "quint8", "quint16"], "int_val"),
}
"""The field of a TensorProto for the values of each type."""
_LEAST: Final = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16, "string": 2}
"""The fewest bytes of a value in its field; one for all other types."""


class _Meta(NamedTuple):
    """The type and shape of a tensor, and the file of each of its pieces."""

    messages: list[Any]
    tables: list[TableReader]


class _LegacyTensor(NamedTuple):
    dtype: DType
    shape: tuple[int, ...]
    pieces: dict[TensorSlice, TableReader]


class LegacyReader:
    """An open V1 checkpoint. `BundleReader` describes its methods."""

    origin: Final = CHECKPOINT

    def __init__(self, storage: Storage, prefix: str, paths: tuple[str, ...]) -> None:
        self.prefix = prefix
        self.shard_paths = list(paths)
        self._files: list[ReadableFile] = []
        self._metas: dict[str, _Meta] = {}
        self._tensors: dict[str, _LegacyTensor] = {}
        try:
            for path in paths:
                self._files.append(storage.open(path))
                self._read_meta(self._files[-1])
        except MilepostError as error:
            self.close()
            if not _is_known(storage, path):
                error.with_context(
                    remedy=f"pass the path of a checkpoint; one of TensorFlow 2 has a file {path + '.index'!r}"
                )
            raise error.with_context(file=path) from None

    def keys(self) -> list[str]:
        return sorted(self._metas)

    def __contains__(self, key: object) -> bool:
        return key in self._metas

    def spec(self, key: str) -> TensorSpec:
        tensor = self._tensor(key)
        return TensorSpec(tensor.dtype, tensor.shape)

    def entry(self, key: str) -> Entry:
        tensor = self._tensor(key)
        pieces = tuple(tensor.pieces)
        whole = len(pieces) == 1 and pieces[0].is_whole
        return Entry(tensor.dtype, tensor.shape, slices=() if whole else pieces)

    def catalogue(self) -> Catalogue:
        keys = self.keys()
        entries = {position: self.entry(key) for position, key in enumerate(keys)}
        catalogue = Catalogue.of(keys, [], np.full(len(keys), UNKNOWN)).with_entries(entries)
        # no tensor has a place and a size of its own
        size = np.array([*(UNKNOWN if spec.dtype.is_bytes else spec.nbytes for spec in catalogue.specs)], np.int64)
        no_run = np.zeros(len(keys), bool)
        return catalogue._replace(file=np.full(len(keys), UNKNOWN), size=size[catalogue.spec], is_run=no_run)

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        self._tensor(key)
        return None

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        return None

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        tensor = self._tensor(key)
        box = box or TensorSlice.whole(len(tensor.shape))
        overlapping = self._overlaps(key, tensor, box)
        self._check_room(key, TensorSpec(tensor.dtype, box.shape(tensor.shape)))
        array = new_array(tensor.dtype, box.shape(tensor.shape))
        for overlap in overlapping:
            piece = self._values(key, tensor, overlap.piece)
            array[index_of(overlap.target)] = piece[index_of(overlap.source)]
        return array

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        destination[...] = self.read(key, box)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        tensor = self._tensor(key)
        for overlap in self._overlaps(key, tensor, box or TensorSlice.whole(len(tensor.shape))):
            self._values(key, tensor, overlap.piece)

    def map(self, key: str) -> Array:
        self._tensor(key)
        raise UnsupportedError(
            "tensors of a checkpoint from before TensorFlow 0.12 are not stored as they would be in memory",
            key=key,
            file=self.prefix,
            remedy="use read() instead of map()",
        )

    def verify(self) -> tuple[int, int]:
        for file in self._files:
            _table(file).verify()
        for key in self._metas:
            self.check(key)
        return len(self._metas), len(self._metas)

    def check_files(self) -> None:
        """Does nothing. Opening has already read the end of each file, which tells the places of all other parts."""

    def hold(self) -> None:
        """Does nothing, because the files are open."""

    def is_replaced(self) -> bool:
        return False

    def release(self, *, for_good: bool) -> None:
        if for_good:
            self.close()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read_meta(self, file: ReadableFile) -> None:
        table = _table(file)
        row = table.get(META_KEY)
        if row is None:
            raise CorruptCheckpointError("the file has no header, so it is not a checkpoint")
        meta = parse(SavedTensorSlices, row, what="the header of the checkpoint").meta
        if meta.versions.min_consumer > VERSION or VERSION in meta.versions.bad_consumers:
            raise UnsupportedError(
                "the checkpoint says that readers of this version must not read it",
                expected=f"a reader of version {meta.versions.min_consumer} or later",
                found=f"version {VERSION}",
                remedy="load it with TensorFlow, and save it again in the present format",
            )
        for message in meta.tensor:
            try:
                key = message.name.decode()
            except UnicodeDecodeError:
                raise CorruptCheckpointError("a key that is not UTF-8", key=message.name) from None
            tensor_meta = self._metas.setdefault(key, _Meta([], []))
            if tensor_meta.tables and tensor_meta.tables[-1] is table:
                raise CorruptCheckpointError("the header of the checkpoint names a tensor twice", key=f"{key:.80}")
            tensor_meta.messages.append(message)
            tensor_meta.tables.append(table)

    def _tensor(self, key: str) -> _LegacyTensor:
        tensor = self._tensors.get(key)
        if tensor is None:
            meta = self._metas.get(key)
            if meta is None:
                raise no_such_key(key, self.keys(), self.prefix)
            try:
                tensor = self._tensors[key] = _decode_meta(meta)
            except MilepostError as error:
                raise error.with_context(key=key, file=self.prefix) from None
        return tensor

    def _overlaps(self, key: str, tensor: _LegacyTensor, box: TensorSlice) -> list[Overlap]:
        try:
            return overlaps(list(tensor.pieces), box, tensor.shape)
        except CorruptCheckpointError as error:
            raise error.with_context(key=key, file=self.prefix) from None

    def _check_room(self, key: str, spec: TensorSpec) -> None:
        """Checks that the files can hold so many values, before an array is made for them."""
        least = spec.size * _LEAST.get(spec.dtype.name, 1)
        most = MOST_FROM_BYTE * sum(file.size for file in self._files)
        if least > most:
            raise CorruptCheckpointError(
                "a tensor is too large for the file, even if it is compressed",
                key=key,
                file=self.prefix,
                expected=f"at most {most} bytes",
                found=f"at least {least} bytes for {spec}",
            )

    def _values(self, key: str, tensor: _LegacyTensor, box: TensorSlice) -> Array:
        try:
            row = tensor.pieces[box].get(slice_key(key.encode(), box))
            if row is None:
                raise CorruptCheckpointError(f"the slice {box or 'that is all'} of the tensor is missing")
            data = parse(SavedTensorSlices, row, what="the slice of a tensor").data
            values = _decode_values(tensor.dtype, box.shape(tensor.shape), data.data)
        except MilepostError as error:
            raise error.with_context(key=key, file=self.prefix) from None
        if (count := counter()) is not None:
            count(values.nbytes)
        return values


def _is_known(storage: Storage, path: str) -> bool:
    """Whether a file is a checkpoint, though damaged: it ends as a table, or the file of its graph is beside it."""
    if storage.is_file(path + GRAPH_SUFFIX):
        return True
    if not storage.is_file(path):
        return False
    file = storage.open(path)
    try:
        return file.size >= len(MAGIC) and bytes(file.read(file.size - len(MAGIC), len(MAGIC))) == MAGIC
    except MilepostError:
        return False
    finally:
        file.close()


def _table(file: ReadableFile) -> TableReader:
    # a block holds whole tensors, so it may be as large as the file
    return TableReader(file, block_limit=max(BLOCK_LIMIT, file.size))


def _decode_meta(meta: _Meta) -> _LegacyTensor:
    first = meta.messages[0]
    shape = shape_of(first.shape)
    pieces = {}
    for message, table in zip(meta.messages, meta.tables, strict=True):
        if message.type != first.type or shape_of(message.shape) != shape:
            raise CorruptCheckpointError("the files disagree on the type and shape of a tensor")
        for box in message.slice:
            pieces[parse_box(box, shape)] = table
    return _LegacyTensor(dtype_of(first.type), shape, pieces)


def _decode_values(dtype: DType, shape: tuple[int, ...], message: Any) -> Array:
    field = _FIELDS.get(dtype.name)
    if field is None:
        raise UnsupportedError("checkpoints from before TensorFlow 0.12 cannot hold this type", found=dtype)
    values = getattr(message, field)
    expected = math.prod(shape) * (2 if dtype.name in _COMPLEX else 1)
    if len(values) != expected:
        raise CorruptCheckpointError(
            "too few or too many values for the shape", expected=f"{expected} for {shape}", found=len(values)
        )
    if dtype.is_bytes:
        return object_array(list(values), shape)
    if dtype.name in _COMPLEX:
        flat = np.array(values, f"f{dtype.itemsize // 2}").view(dtype.numpy)
    elif dtype.name in _HALVES:
        flat = np.array(values, np.int32).astype(np.uint16).view(dtype.numpy)
    elif field == "int_val":
        # numbers that do not fit wrap around; only a damaged file has them
        flat = np.array(values, np.int32).astype(dtype.numpy[0] if dtype.numpy.names else dtype.numpy)
        flat = flat.view(dtype.numpy)
    else:
        flat = np.array(values, dtype.numpy)
    return flat.reshape(shape)

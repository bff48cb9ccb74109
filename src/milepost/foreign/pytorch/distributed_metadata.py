"""Reads the file `.metadata` of a directory that `torch.distributed.checkpoint` wrote, without unpickling it.

::

    Metadata              state_dict_metadata  by name, a TensorStorageMetadata or a BytesStorageMetadata
                          planner_data         by name, the path of the value in the nested state dict; None if it was not flattened
                          storage_data         by MetadataIndex, a _StorageInfo
                          version              "1.0.0"; none in files of older versions of PyTorch
    TensorStorageMetadata properties, of which the first is the element type; size; chunks
    ChunkStorageMetadata  offsets, sizes                                          a box of the tensor
    MetadataIndex         fqn (the name), offset (of a box; None for an object)
    _StorageInfo          relative_path, offset, length, transform_descriptors    the last one names a compression

Limits: 1 GiB, and those of `pickled`, but with one more list, tuple, dict, set, name or call for each 8 bytes. That is enough for any
number of pieces. Source: PyTorch 2.13, ``torch/distributed/checkpoint/metadata.py``, ``filesystem.py``.
"""

from __future__ import annotations

import itertools
import math
import os
import reprlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from milepost.bundle.format.slices import Box
from milepost.coding.depth import DEEPEST
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.opaque import Name, Opaque
from milepost.foreign.pytorch import rebuilt
from milepost.foreign.pytorch.pickled import PickledData
from milepost.foreign.pytorch.tensors import element_size
from milepost.foreign.pytorch.tiling import check_tiling
from milepost.foreign.shapes import are_counts, is_count
from milepost.storage import ReadableFile

_LONGEST: Final = 1 << 30
_BYTES_EACH: Final = 8
_VERSION: Final = "1."
_MODULE: Final = "torch.distributed"
_AGAIN: Final = "load the directory with torch.distributed.checkpoint, and save the state with milepost"


class StoredItem(NamedTuple):
    """Where an item is: a file of `torch.save` inside a data file.

    Attributes:
        file: The name of the data file.
        offset: The first byte.
        length: The number of bytes.
    """

    file: str
    offset: int
    length: int


class SavedPiece(NamedTuple):
    """A box of a tensor.

    Attributes:
        box: Its start and stop in each dimension.
        place: Where it is.
    """

    box: Box
    place: StoredItem


class TensorInPieces(NamedTuple):
    """A tensor in pieces.

    Attributes:
        dtype: PyTorch's name of its element type.
        is_readable: Whether milepost can read tensors of this type.
        shape: Its shape.
        pieces: Boxes that cover it, each element once. There are none if it has no elements.
    """

    dtype: str
    is_readable: bool
    shape: tuple[int, ...]
    pieces: tuple[SavedPiece, ...]


class DirectoryContents(NamedTuple):
    """The contents of a directory.

    Attributes:
        values: By name, a tensor, or the place of an object.
        paths: By name, the path to the value through dicts (text) and lists (numbers).
    """

    values: dict[str, TensorInPieces | StoredItem]
    paths: dict[str, tuple[str | int, ...]]

    def places(self) -> list[tuple[StoredItem, str]]:
        """The places of all items, with the names of their values, in the order of the files."""
        items = []
        for name, value in self.values.items():
            if isinstance(value, StoredItem):
                items.append((value, name))
            else:
                items += [(piece.place, name) for piece in value.pieces]
        return sorted(items)


def read_metadata(file: ReadableFile) -> DirectoryContents:
    """Reads the whole file.

    Raises:
        CorruptCheckpointError: It is damaged, or the pieces that it names do not make up their tensors.
        UnsupportedError: It exceeds a limit, or it describes values that PyTorch did not write to plain files.
    """
    try:
        if file.size > _LONGEST:
            raise UnsupportedError(
                "the metadata of this directory are too long", expected=f"{_LONGEST} bytes or less", found=file.size
            )
        data = file.read(0, file.size)
        tree = PickledData(data, rebuilt.meaning, rebuilt.call, rebuilt.build, _no_storage, _BYTES_EACH).read()
        contents = _contents(tree)
        _check_apart(contents)
        return contents
    except MilepostError as error:
        raise error.with_context(file=file.path) from None


def _contents(tree: Any) -> DirectoryContents:
    metadata = _state(tree, "Metadata")
    version = metadata.get("version")
    if version is not None and not (isinstance(version, str) and version.startswith(_VERSION)):
        raise UnsupportedError(
            "a later version of torch.distributed.checkpoint wrote this directory",
            expected=f"version {_VERSION}x",
            found=reprlib.repr(version),
            remedy="update milepost",
        )
    described, stored = metadata.get("state_dict_metadata"), metadata.get("storage_data")
    if not isinstance(described, dict) or not isinstance(stored, dict):
        raise _damaged("a dict of values and a dict of their places", metadata)
    items = _places(stored)
    values: dict[str, TensorInPieces | StoredItem] = {}
    for name, value in described.items():
        if not isinstance(name, str):
            raise _damaged("names of values", name)
        try:
            values[name] = _value(name, value, items)
        except MilepostError as error:
            raise error.with_context(key=name) from None
    return DirectoryContents(values, _paths(metadata.get("planner_data"), values))


def _value(name: str, value: Any, items: Mapping[tuple[str, str], StoredItem]) -> TensorInPieces | StoredItem:
    if isinstance(value, Opaque) and value.name.name == "BytesStorageMetadata":
        return _place(items, name, None)
    tensor = _state(value, "TensorStorageMetadata")
    dtype, is_readable = _dtype(tensor.get("properties"))
    shape, chunks = tensor.get("size"), tensor.get("chunks")
    if not are_counts(shape, tuple) or not isinstance(chunks, list):
        raise _damaged("a shape and a list of pieces", tensor)
    pieces = []
    for chunk in chunks:
        piece = _state(chunk, "ChunkStorageMetadata")
        start, size = piece.get("offsets"), piece.get("sizes")
        if not are_counts(start, tuple) or not are_counts(size, tuple) or not len(start) == len(size) == len(shape):
            raise _damaged(f"a box of {len(shape)} dimensions", piece)
        if 0 in size:
            continue  # from a process that holds no part of the tensor
        box = tuple((first, first + length) for first, length in zip(start, size, strict=True))
        pieces.append(SavedPiece(box, _place(items, name, start)))
    check_tiling([piece.box for piece in pieces], shape)
    for box, item in pieces:
        nbytes = math.prod(stop - first for first, stop in box) * (element_size(dtype) if is_readable else 0)
        if nbytes > item.length:
            raise CorruptCheckpointError(
                "a piece of a tensor is longer than the bytes that were saved for it",
                expected=f"{nbytes} bytes",
                found=f"{item.length} bytes in {item.file!r:.80}",
            )
    return TensorInPieces(dtype, is_readable, shape, tuple(pieces))


def _dtype(properties: Any) -> tuple[str, bool]:
    """PyTorch's name of the element type, and whether tensors of it can be read."""
    state = properties.state if isinstance(properties, Opaque) else None
    dtype = state.get("dtype") if isinstance(state, dict) else state[0] if isinstance(state, tuple) and state else None
    if isinstance(dtype, rebuilt.Symbol):
        return dtype.removeprefix("torch."), True
    if isinstance(dtype, Name) and dtype.module == "torch":
        return dtype.name, False
    raise _damaged("an element type", dtype)


def _places(stored: Mapping[Any, Any]) -> dict[tuple[str, str], StoredItem]:
    """The place of each item, by its name and, as text, the start of its box."""
    items: dict[tuple[str, str], StoredItem] = {}
    for key, value in stored.items():
        index = _state(key, "MetadataIndex")
        name, start = index.get("fqn"), index.get("offset")
        if not isinstance(name, str) or not (start is None or are_counts(start, tuple)):
            raise _damaged("a name, and the start of a box", index)
        try:
            items[name, str(start)] = _stored_place(value)
        except MilepostError as error:
            raise error.with_context(key=name) from None
    return items


def _stored_place(value: Any) -> StoredItem:
    if not isinstance(value, Opaque) or value.name.name != "_StorageInfo":
        raise UnsupportedError(
            "this directory was not written to plain files by torch.distributed.checkpoint",
            expected="places of the class _StorageInfo",
            found=f"{value!s:.200}" if isinstance(value, Opaque) else f"an object of type {type(value).__name__}",
            remedy=_AGAIN + ", with the reader for its storage",
        )
    info = _state(value, "_StorageInfo")
    file, offset, length = info.get("relative_path"), info.get("offset"), info.get("length")
    if not is_count(offset) or not is_count(length):
        raise _damaged("the position and the length of an item", info)
    # Metadata from elsewhere must not lead to other files of this machine.
    if not isinstance(file, str) or os.path.basename(file) != file or "\\" in file or file in ("", ".", ".."):
        raise CorruptCheckpointError("the metadata must name data files without directories", found=reprlib.repr(file))
    transforms = info.get("transform_descriptors")
    if transforms:
        raise UnsupportedError(
            "the values in this directory are compressed or encrypted, and milepost cannot read them",
            expected="values that were saved without extensions",
            found=reprlib.repr(transforms),
            remedy=_AGAIN,
        )
    return StoredItem(file, offset, length)


def _place(items: Mapping[tuple[str, str], StoredItem], name: str, start: tuple[int, ...] | None) -> StoredItem:
    item = items.get((name, str(start)))
    if item is None:
        raise CorruptCheckpointError(
            "the metadata do not say where a value is",
            expected="the place of " + ("an object" if start is None else f"the piece that begins at {start}"),
            found="nothing",
        )
    return item


def _paths(planned: Any, names: Mapping[str, Any]) -> dict[str, tuple[str | int, ...]]:
    if planned is not None and not isinstance(planned, dict):
        raise _damaged("the paths of the values", planned)
    paths: dict[str, tuple[str | int, ...]] = {}
    for name in names:
        path = (planned or {}).get(name, (name,))
        if (
            not isinstance(path, (tuple, list))
            or not 0 < len(path) <= DEEPEST
            or not all(isinstance(step, str) or is_count(step) for step in path)
            or not isinstance(path[0], str)
        ):
            raise _damaged(f"a path of {DEEPEST} steps or less", path).with_context(key=name)
        paths[name] = tuple(path)
    return paths


def _check_apart(contents: DirectoryContents) -> None:
    """Checks that no two items claim the same bytes, so that all of them take no more than the data files."""
    for (item, name), (other, following) in itertools.pairwise(contents.places()):
        if item.file == other.file and other.offset < item.offset + item.length:
            raise CorruptCheckpointError(
                "two values claim the same bytes",
                key=following,
                expected=f"a start at {item.offset + item.length} or later in {item.file!r:.80}, where {name!r:.80} ends",
                found=other.offset,
            )


def _state(value: Any, kind: str) -> dict[str, Any]:
    """The attributes of an object of one of PyTorch's classes."""
    if (
        isinstance(value, Opaque)
        and value.name.name == kind
        and value.name.module.startswith(_MODULE)
        and isinstance(value.state, dict)
    ):
        return value.state
    raise _damaged(f"an object of the class {kind}", value)


def _no_storage(identity: Any) -> Any:
    raise ValueError("no storage")


def _damaged(expected: str, found: Any) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "the metadata of this directory are damaged, or not those of torch.distributed.checkpoint",
        expected=expected,
        found=f"{found!s:.200}" if isinstance(found, (Opaque, Name)) else reprlib.repr(found),
    )

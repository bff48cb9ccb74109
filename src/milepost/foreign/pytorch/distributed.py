"""Reads directories that `torch.distributed.checkpoint` (DCP) wrote.

::

    <directory>/.metadata                      what there is, and where; it is written last
    <directory>/__<process>_<number>.distcp    items, each a file of `torch.save`, one after the other
    <directory>/__<process>.metadata           instead of .metadata, if the processes saved without telling each other

An item is a box of a tensor, or an object that is not a tensor. Objects are read when the directory is opened. Tensors are read on
demand, and only from the items that hold a requested part. Source: PyTorch 2.13, ``torch/distributed/checkpoint/filesystem.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from milepost.bundle.boxes import read_box
from milepost.bundle.format.entry import Entry
from milepost.bundle.format.slices import Box, index_of, intersection, relative
from milepost.bundle.held import FileInMemory
from milepost.bundle.memory import Array, new_array
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.opaque import Opaque
from milepost.foreign.pytorch.archive import TorchArchive
from milepost.foreign.pytorch.distributed_metadata import SavedPiece, StoredItem, TensorInPieces, read_metadata
from milepost.foreign.pytorch.nested import nested
from milepost.foreign.pytorch.rebuilt import refusal, unreadable
from milepost.foreign.pytorch.tensors import View, dtype_of
from milepost.foreign.stored import Stored
from milepost.foreign.windows import Window
from milepost.foreign.zip_directory import Archive
from milepost.storage import ReadableFile, Storage
from milepost.storage.default import anchored
from milepost.tensor import TensorSpec

METADATA: Final = ".metadata"
SUFFIX: Final = ".distcp"
_PICKLED: Final = b"\x80"
_OF_ONE_PROCESS: Final = re.compile(r"__\d+\.metadata$")
_SHARD: Final = re.compile(r"shard-\d+-.*\.safetensors$")
_MOST_OPEN: Final = 256
"""How many data files stay open from the beginning. Others are opened when they are needed."""
_SMALL: Final = 64 << 10
"""Bytes up to which an item is read at once."""
_MOST_KEPT: Final = 1024
"""How many archives are remembered, so that they need not be opened again."""
_BUFFER: Final = 16 << 20
"""Bytes of a part of a piece that is read before it is copied to where it belongs."""
_PYTORCH: Final = (
    "load the directory with torch.distributed.checkpoint, as it was saved, and save the state with milepost"
)


def looks_like(storage: Storage, path: str) -> bool:
    """Whether a directory is one of DCP, complete or not."""
    metadata = os.path.join(path, METADATA)
    if storage.is_file(metadata) and _begins_pickled(storage, metadata):
        return True
    return any(
        name.endswith(SUFFIX) or _OF_ONE_PROCESS.match(name) or _SHARD.match(name) for name in storage.list(path)
    )


def refuse(path: str) -> None:
    """Refuses a single file of a directory of DCP.

    Raises:
        UnsupportedError: The file has a name of DCP.
    """
    directory, name = os.path.split(path)
    if name.endswith(SUFFIX) or name == METADATA or _OF_ONE_PROCESS.match(name):
        raise UnsupportedError(
            "this is a part of what torch.distributed.checkpoint saved",
            file=path,
            expected="the directory that it wrote",
            found=f"the file {name!r:.80}",
            remedy=f"pass the directory: {directory or '.'!r}",
        )


class _Pieces(NamedTuple):
    """Where a tensor is.

    Attributes:
        pieces: Boxes that cover it. They have the dimensions of its spec.
        name: Its name, for errors.
    """

    pieces: tuple[SavedPiece, ...]
    name: str


class _Part(NamedTuple):
    """A part of a piece.

    Attributes:
        piece: The piece.
        source: The part, relative to the piece.
        target: The part, relative to the box that is read.
    """

    piece: SavedPiece
    source: Box
    target: Box


class DistributedDirectory:
    """An open directory of DCP; see `ForeignFile`.

    Args:
        storage: Where it is.
        path: The directory.

    Raises:
        CheckpointNotFoundError: A data file is missing.
        CorruptCheckpointError: The directory is damaged, or its save was interrupted.
        UnsupportedError: It was saved in a way that milepost does not read.
    """

    dotted = True
    kind = "torch"
    library = "DCP"

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        _check_kind(storage, path)
        metadata = storage.open(os.path.join(path, METADATA))
        try:
            contents = read_metadata(metadata)
        finally:
            metadata.close()
        self._files = _DataFiles(anchored(storage, path), path)
        self._objects: dict[str, TorchArchive] = {}
        self._opened: dict[StoredItem, tuple[TorchArchive, Stored]] = {}
        self._without_checksum: set[str] = set()  # of the tensors that have been checked
        try:
            self._files.check(contents.places())
            self.paths = self._files.paths()
            self.tree = nested(
                (contents.paths[name], self._value(name, value)) for name, value in contents.values.items()
            )
        except BaseException as error:
            self.close()
            if isinstance(error, MilepostError):
                raise error.with_context(file=os.path.join(path, METADATA)) from None
            raise

    def read_into(self, tensor: Stored, destination: Array) -> None:
        if isinstance(tensor.place, _Pieces):
            self.read_box(tensor, _whole(tensor), destination)
        else:
            self._owner(tensor).read_into(tensor, destination)

    def read_box(self, tensor: Stored, box: Box, destination: Array) -> None:
        if not isinstance(tensor.place, _Pieces):
            whole = new_array(tensor.spec.dtype, tensor.spec.shape)
            self.read_into(tensor, whole)
            destination[...] = whole[index_of(box)]
            return
        for part in _parts(tensor.place.pieces, box):
            archive, stored = self._piece(tensor, part.piece)
            _read_part(archive, stored, part.source, destination[index_of(part.target)], tensor.place.name)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return None if isinstance(tensor.place, _Pieces) else self._owner(tensor).extent(tensor)

    def check(self, tensor: Stored) -> None:
        self.check_box(tensor, _whole(tensor))

    def has_checksum(self, tensor: Stored) -> bool:
        if not isinstance(tensor.place, _Pieces):
            return self._owner(tensor).has_checksum(tensor)
        return tensor.place.name not in self._without_checksum

    def check_box(self, tensor: Stored, box: Box) -> None:
        if not isinstance(tensor.place, _Pieces):
            self._owner(tensor).check(tensor)
            return
        for part in _parts(tensor.place.pieces, box):
            archive, stored = self._piece(tensor, part.piece)
            archive.check(stored)
            if not archive.has_checksum(stored):
                self._without_checksum.add(tensor.place.name)

    def close(self) -> None:
        self._files.close()

    def _value(self, name: str, value: TensorInPieces | StoredItem) -> Any:
        if isinstance(value, StoredItem):
            return self._object(name, value)
        if not value.is_readable:
            return unreadable(value.dtype)
        spec = TensorSpec(dtype_of(value.dtype), value.shape)
        more = tuple((0, length) for length in spec.shape[len(value.shape) :])  # the bytes of an element
        pieces = tuple(piece._replace(box=piece.box + more) for piece in value.pieces) if more else value.pieces
        return Stored(spec, _Pieces(pieces, name))

    def _object(self, name: str, item: StoredItem) -> Any:
        """Reads an object that is not a tensor. Tensors inside it, for example in a tuple, stay in the file."""
        label = f"{len(self._objects)}/"
        try:
            archive = TorchArchive(Archive(self._item(item)), label)
        except MilepostError as error:
            raise error.with_context(key=name) from None
        if archive.has_tensors:
            self._objects[label] = archive
        return archive.tree

    def _owner(self, tensor: Stored) -> TorchArchive:
        """The archive that holds a tensor which is part of an object."""
        view: View = tensor.place
        return self._objects[view.storage.key.partition("/")[0] + "/"]

    def _piece(self, tensor: Stored, piece: SavedPiece) -> tuple[TorchArchive, Stored]:
        """The open archive of a piece, and the piece in it."""
        opened = self._opened.get(piece.place)
        if opened is None:
            archive = TorchArchive(Archive(self._item(piece.place)))
            stored = archive.tree
            if isinstance(stored, Opaque):
                raise refusal(stored)
            expected = TensorSpec(tensor.spec.dtype, tuple(stop - start for start, stop in piece.box))
            if not isinstance(stored, Stored) or stored.spec != expected:
                raise CorruptCheckpointError(
                    f"the item at byte {piece.place.offset} is not the piece of a tensor that the metadata describe",
                    file=archive.path,
                    expected=expected,
                    found=stored.spec if isinstance(stored, Stored) else f"an object of type {type(stored).__name__}",
                )
            if len(self._opened) >= _MOST_KEPT:
                self._opened.clear()
            opened = self._opened[piece.place] = archive, stored
        return opened

    def _item(self, item: StoredItem) -> ReadableFile:
        file = self._files.open(item.file)
        if item.length <= _SMALL:
            return FileInMemory(file.path, file.read(item.offset, item.length))
        return Window(file, item.offset, item.length)


class _DataFiles:
    """The data files of a directory."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._sizes: dict[str, int] = {}
        self._open: dict[str, ReadableFile] = {}

    def check(self, items: list[tuple[StoredItem, str]]) -> None:
        """Checks that all files are there, and are long enough for their items, which are in order."""
        ends = {item.file: (item.offset + item.length, name) for item, name in items}
        for name, (end, key) in ends.items():
            try:
                file = self._storage.open(os.path.join(self._directory, name))
            except CheckpointNotFoundError:
                raise CheckpointNotFoundError(
                    "a data file that the metadata name is missing",
                    key=key,
                    file=os.path.join(self._directory, name),
                    remedy="copy all files of the directory, or use another checkpoint",
                ) from None
            self._sizes[name] = file.size
            if len(self._open) < _MOST_OPEN:
                self._open[name] = file
            else:
                file.close()
            if file.size < end:
                raise CorruptCheckpointError(
                    "a data file is cut off, or belongs to another checkpoint",
                    key=key,
                    file=file.path,
                    expected=f"at least {end} bytes",
                    found=f"{file.size} bytes",
                )

    def paths(self) -> list[str]:
        """The paths of all files."""
        return [os.path.join(self._directory, name) for name in self._sizes]

    def open(self, name: str) -> ReadableFile:
        """An open file, which stays open."""
        file = self._open.get(name)
        if file is None:
            file = self._storage.open(os.path.join(self._directory, name))
            if file.size != self._sizes[name]:
                file.close()
                raise CorruptCheckpointError(
                    "a data file was replaced while the directory was open",
                    file=file.path,
                    expected=f"{self._sizes[name]} bytes",
                    found=f"{file.size} bytes",
                )
            file = self._open.setdefault(name, file)
        return file

    def close(self) -> None:
        """Closes all files."""
        for file in self._open.values():
            file.close()


def _check_kind(storage: Storage, path: str) -> None:
    """Refuses directories that have no readable `.metadata`."""
    if storage.is_file(os.path.join(path, METADATA)):
        return
    names = storage.list(path)
    alone = [name for name in names if _OF_ONE_PROCESS.match(name)]
    if alone:
        raise UnsupportedError(
            "each process has saved to this directory for itself, with use_collectives=False",
            file=path,
            expected=f"one file {METADATA} for all processes",
            found=", ".join(alone[:3]) + (", ..." if len(alone) > 3 else ""),
            remedy=_PYTORCH,
        )
    shards = [name for name in names if _SHARD.match(name)]
    if shards:
        raise UnsupportedError(
            "HuggingFaceStorageWriter has saved pieces of tensors to this directory, without joining them",
            file=path,
            expected="whole tensors, with model.safetensors.index.json",
            found=", ".join(shards[:3]) + (", ..." if len(shards) > 3 else ""),
            remedy="save with enable_consolidation=True; or load it with HuggingFaceStorageReader, and save the state with milepost",
        )
    count = sum(name.endswith(SUFFIX) for name in names)
    raise CorruptCheckpointError(
        "torch.distributed.checkpoint has not finished writing this directory",
        file=path,
        expected=f"the file {METADATA}, which it writes last",
        found=f"{count} file{'s' if count != 1 else ''} *{SUFFIX}",
        remedy=f"use another checkpoint; if this is a copy, copy {METADATA} too: many tools leave it out because it is hidden",
    )


def _begins_pickled(storage: Storage, path: str) -> bool:
    file = storage.open(path)
    try:
        return file.size > 0 and bytes(file.read(0, 1)) == _PICKLED
    finally:
        file.close()


def _whole(tensor: Stored) -> Box:
    return tuple((0, length) for length in tensor.spec.shape)


def _parts(pieces: tuple[SavedPiece, ...], box: Box) -> Iterator[_Part]:
    """The parts of pieces that a box consists of."""
    for piece in pieces:
        common = intersection(piece.box, box)
        if common is not None:
            yield _Part(piece, relative(common, piece.box), relative(common, box))


def _read_part(archive: TorchArchive, stored: Stored, source: Box, target: Array, name: str) -> None:
    extent = archive.extent(stored)
    if extent is None:
        whole = new_array(stored.spec.dtype, stored.spec.shape)
        archive.read_into(stored, whole)
        target[...] = whole[index_of(source)]
        return
    file, offset = extent
    entry = Entry(stored.spec.dtype, stored.spec.shape, offset=offset, size=stored.spec.nbytes)
    if target.flags.c_contiguous:
        read_box(file, entry, source, target, name)
        return
    for box, part in _rows(source, target):
        buffer = new_array(stored.spec.dtype, part.shape)
        read_box(file, entry, box, buffer, name)
        part[...] = buffer


def _rows(box: Box, target: Array) -> Iterator[tuple[Box, Array]]:
    """A box and its target in parts of some rows each, which fit into a buffer."""
    axis = next((axis for axis, length in enumerate(target.shape) if length > 1), None)
    if axis is None or target.nbytes <= _BUFFER:
        yield box, target
        return
    start, stop = box[axis]
    rows = max(1, _BUFFER // (target.nbytes // (stop - start)))
    for first in range(start, stop, rows):
        last = min(first + rows, stop)
        part = target[(slice(None),) * axis + (slice(first - start, last - start),)]
        smaller = (*box[:axis], (first, last), *box[axis + 1 :])
        if last - first == 1:
            yield from _rows(smaller, part)
        else:
            yield smaller, part

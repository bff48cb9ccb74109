"""An open file of another library, with the methods of an open checkpoint."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from milepost.bundle.boxes import read_box
from milepost.bundle.catalogue import Catalogue, numbered
from milepost.bundle.counting import counter
from milepost.bundle.format.entry import Entry
from milepost.bundle.format.slices import Box, index_of, ranges
from milepost.bundle.interface import Origin
from milepost.bundle.mapping import map_bytes
from milepost.bundle.memory import Array, new_array
from milepost.bundle.problems import no_such_key
from milepost.bundle.transfer import read_chunks
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.items import ROOT, Item, are_keys, items_of, tensors_alone, walked
from milepost.foreign.opaque import Opaque
from milepost.foreign.packed import packed
from milepost.foreign.pytorch.rebuilt import kind_of, refusal
from milepost.foreign.renamed import renamed
from milepost.foreign.stored import (
    BoxedFile,
    CheckedFile,
    DescribedFile,
    ForeignFile,
    ListedFile,
    Stored,
    catalogue_of,
)
from milepost.graph.numbers import NUMBERS
from milepost.graph.saved.renaming import Rename
from milepost.plain_state.encoding import TEXT
from milepost.storage import ReadableFile
from milepost.storage.local_files import LocalFile
from milepost.tensor import DType, TensorSlice, TensorSpec

if TYPE_CHECKING:
    from milepost.foreign.keras.files import KerasFile

_INT64: Final = range(-(1 << 63), 1 << 63)
_BLOCK: Final = 16 << 20
"""Bytes of two tensors that are compared at once."""
_ONLY_AS_TEXT: Final = (int, set, frozenset, bytearray, io.BytesIO)
"""Plain values that no array can represent. They are listed as the JSON text of plain state."""


class ForeignReader:
    """A file or directory of another library, with the methods of `BundleReader`.

    Args:
        file: The open file.

    Attributes:
        prefix: The path.
        origin: The library, and how names are read.

    Raises:
        UnsupportedError: The tree has too many levels or items, or is a single value.
    """

    def __init__(self, file: ForeignFile) -> None:
        self.prefix = file.path
        metadata = file.metadata if isinstance(file, DescribedFile) else None
        self.origin = Origin(file.library, file.kind, file.dotted, metadata or None)
        self._file = file
        self._boxed = file if isinstance(file, BoxedFile) else None
        self._tensors: dict[str, Stored] | None = None
        self._plain: dict[str, Any] = {}
        self._objects: dict[str, Opaque] = {}
        self._root: Item | None = None
        self._catalogue: Catalogue | None = None
        self._listing = file.listing() if isinstance(file, ListedFile) else None
        if self._listing is not None and are_keys(self._listing.keys, dotted=file.dotted):
            return
        self._listing = None
        if (tensors := tensors_alone(file.tree, dotted=file.dotted)) is not None:
            self._tensors = tensors
            return
        try:
            self._root = items_of(file.tree, dotted=file.dotted)
        except MilepostError as error:
            file.close()
            raise error.with_context(file=self.prefix) from None
        self._tensors = {}
        for item in walked(self.root):
            if item.opaque is not None:
                self._objects[ROOT if item is self._root else item.key] = item.opaque
            if isinstance(item.value, Stored):
                self._stored[item.key] = item.value
            elif is_value(item.value):
                self._plain[item.key] = item.value
            elif isinstance(item.value, _ONLY_AS_TEXT):
                with suppress(UnsupportedError):  # a set may hold an object that plain state refuses
                    described = packed(item.value, item.key, file.kind)
                    if len(described) == 1:
                        self._plain[item.key] = described[TEXT]

    @property
    def _stored(self) -> dict[str, Stored]:
        """The tensors by key. Those of a listing are made when they are asked for."""
        if self._tensors is None:
            assert isinstance(self._file, ListedFile), "all others have made them"
            self._tensors = dict(self._file.tensors())
        return self._tensors

    @property
    def root(self) -> Item:
        """The tree of everything in the file. That of tensors alone is made when it is asked for: a list of them needs none."""
        if self._root is None:
            self._root = items_of(self._file.tree, dotted=self._file.dotted)
        return self._root

    @property
    def file(self) -> ForeignFile:
        """The open file."""
        return self._file

    @property
    def keras(self) -> KerasFile | None:
        """The file, if it is one of Keras."""
        from milepost.foreign.keras.files import KerasFile

        return self._file if isinstance(self._file, KerasFile) else None

    @property
    def stored_bytes(self) -> int:
        """How many bytes all tensors take if none of them share memory."""
        if self._listing is not None:
            return self._listing.nbytes
        return sum(stored.spec.nbytes for stored in self._stored.values())

    @property
    def shard_paths(self) -> list[str]:
        return self._file.paths

    def rename(self, rename: Rename) -> list[str]:
        """Gives values other names in the tree. Their keys stay.

        Args:
            rename: The live name of each value, by its key, or None to leave it out.

        Returns:
            The keys of what is left out.

        Raises:
            UnsupportedError: Two values would have the same name.
        """
        tree, keys, left_out = renamed(self._file.tree, rename, dotted=self._file.dotted)
        self._catalogue = None
        self._root = items_of(tree, dotted=self._file.dotted, keys=keys)
        for item in walked(self.root):
            known = self._stored.get(item.key) if isinstance(item.value, Stored) else self._plain.get(item.key)
            if (isinstance(item.value, Stored) or is_value(item.value)) and known is not item.value:
                while item.key in self:  # so that each key still leads to the value of its item
                    item.key += "_"
                self.add(item.key, item.value)
        return left_out

    def add(self, key: str, value: Array | Stored) -> None:
        """Adds a value in the form that an object needs, under a key that no other value has."""
        if isinstance(value, Stored):
            self._stored[key] = value
        else:
            self._plain[key] = value
        self._listing = self._catalogue = None  # which do not have it

    def has_equal(self, key: str, other: str) -> bool | None:
        """Whether two tensors have the same bytes. They are compared in chunks if they can be read so. None if one is a plain value."""
        first, second = self._stored.get(key), self._stored.get(other)
        if first is None or second is None:
            return None
        if first is second:
            return True
        if first.spec != second.spec:
            return False
        extents = self._file.extent(first), self._file.extent(second)
        if None in extents and self._boxed is not None:
            return all(
                _read_box(self._boxed, first, box) == _read_box(self._boxed, second, box) for box in _blocks(first.spec)
            )
        if None in extents:
            arrays = [new_array(first.spec.dtype, first.spec.shape) for _ in range(2)]
            for stored, array in zip((first, second), arrays, strict=True):
                self._file.read_into(stored, array)
            return arrays[0].tobytes() == arrays[1].tobytes()
        if extents[0] == extents[1]:
            return True
        chunks = [read_chunks(*extent, first.spec.nbytes) for extent in extents if extent is not None]
        return not first.spec.nbytes or all(np.array_equal(a, b) for a, b in zip(*chunks, strict=True))

    def keys(self) -> list[str]:
        return [*self.catalogue().keys] if self._listing is not None else sorted([*self._stored, *self._plain])

    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            catalogue = self._listing
            if catalogue is None:
                catalogue = Catalogue.joined([catalogue_of(self._file, self._stored), self._plain_values()])
            unread = {item.key for item in walked(self.root) if item.is_unread} if self._objects else set()
            objects = {key: kind_of(opaque) for key, opaque in sorted(self._objects.items())}
            self._catalogue = catalogue.by_key()._replace(
                objects=objects, unread=unread, not_arrays=self._not_arrays(), is_nested=self._is_nested()
            )
        return self._catalogue

    def _is_nested(self) -> bool:
        if self._root is not None:
            return any(not each.is_leaf for each in self._root.members)
        return self._listing is None and any(isinstance(each, Mapping) for each in self._file.tree.values())

    def _not_arrays(self) -> dict[str, str]:
        if self._root is None:  # all are tensors
            return {}
        known = self._stored.keys() | self._plain.keys() | self._objects.keys()
        not_arrays = {
            item.key: _shown(item.value)
            for item in walked(self.root)
            if item.has_value
            and item is not self._root  # a file that is an empty dict
            and item.key not in known
            and (item.is_leaf or not item.value)
        }
        return dict(sorted(not_arrays.items()))

    def _plain_values(self) -> Catalogue:
        """The values that are in memory already, in columns."""
        arrays = {key: self._plain_array(key) for key in self._plain.keys() - self._stored.keys()}
        specs, spec = numbered(TensorSpec(DType.of(array), array.shape) for array in arrays.values())
        size = [
            sum(map(len, array.reshape(-1))) if array.dtype.hasobject else array.nbytes for array in arrays.values()
        ]
        return Catalogue.of([*arrays], specs, spec, is_run=False)._replace(size=np.array(size, np.int64))

    def __contains__(self, key: object) -> bool:
        return key in self._stored or key in self._plain

    def spec(self, key: str) -> TensorSpec:
        stored = self._stored.get(key)
        if stored is not None:
            return stored.spec
        array = self._plain_array(key)
        return TensorSpec(DType.of(array), array.shape)

    def entry(self, key: str) -> Entry:
        spec = self.spec(key)
        return Entry(spec.dtype, spec.shape, size=spec.nbytes)

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        self.spec(key)
        return None

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        return None

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        stored = self._stored.get(key)
        if stored is None:
            whole = self._plain_array(key).copy()
        elif box is not None and self.has_parts(key):
            wanted = ranges(box, stored.spec.shape)
            if self._boxed is not None:
                self._check_box(key, stored, wanted)
            else:
                self.check(key)
            part = new_array(stored.spec.dtype, tuple(stop - start for start, stop in wanted))
            self.read_into(key, part, box)
            return part
        else:
            try:
                self._file.check(stored)
                whole = new_array(stored.spec.dtype, stored.spec.shape)
                self._file.read_into(stored, whole)
            except MilepostError as error:
                raise self._of_value(error, key) from None
            _count(whole)
        return whole if box is None else whole[index_of(ranges(box, whole.shape))].copy()

    def chunks(self, key: str) -> Iterator[Array]:
        """The elements of a tensor in the order of memory, in flat arrays; each is valid until the next one is read.

        If the file holds the tensor in one run of bytes, or can read boxes of it, no more than some megabytes are in memory at once.
        Errors are those of `read`.
        """
        stored = self._stored.get(key)
        if stored is None:
            yield self._plain_array(key).reshape(-1)
            return
        self.check(key)
        extent = self._file.extent(stored)
        if extent is not None and stored.spec.nbytes:
            for chunk in read_chunks(*extent, stored.spec.nbytes):
                yield chunk.view(stored.spec.dtype.numpy)
        elif self._boxed is not None:
            for box in _blocks(stored.spec):
                part = new_array(stored.spec.dtype, tuple(stop - start for start, stop in box))
                self._boxed.read_box(stored, box, part)
                yield part.reshape(-1)
        else:
            yield self.read(key).reshape(-1)

    def has_parts(self, key: str) -> bool:
        """Whether rows of a tensor are read without the rest of it."""
        stored = self._stored.get(key)
        return stored is None or self._boxed is not None or self._file.extent(stored) is not None

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        stored = self._stored.get(key)
        if stored is not None and box is not None and not destination.size:
            return
        if stored is not None and box is not None and self._boxed is None:
            extent, wanted = self._file.extent(stored), ranges(box, stored.spec.shape)
            if extent is not None:
                entry = Entry(stored.spec.dtype, stored.spec.shape, offset=extent[1], size=stored.spec.nbytes)
                try:
                    read_box(extent[0], entry, wanted, destination, key)
                except MilepostError as error:
                    raise self._of_value(error, key) from None
                _count(destination)
                return
        if stored is None or (box is not None and self._boxed is None):
            destination[...] = self.read(key, box)
            return
        try:
            if box is not None and self._boxed is not None:
                self._boxed.read_box(stored, ranges(box, stored.spec.shape), destination)
            else:
                self._file.read_into(stored, destination)
        except MilepostError as error:
            raise self._of_value(error, key) from None
        _count(destination)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        stored = self._stored.get(key)
        if stored is None:
            self._plain_array(key)
            return
        if box is not None and self._boxed is not None:
            self._check_box(key, stored, ranges(box, stored.spec.shape))
            return
        try:
            self._file.check(stored)
        except MilepostError as error:
            raise self._of_value(error, key) from None

    def _of_value(self, error: MilepostError, key: str) -> MilepostError:
        """An error with its key and its file filled in."""
        if isinstance(error, CorruptCheckpointError):
            error.with_context(remedy="use an intact copy of the file")
        return error.with_context(key=key, file=self.prefix)

    def map(self, key: str) -> Array:
        spec, stored = self.spec(key), self._stored.get(key)
        extent = None if stored is None else self._file.extent(stored)
        if extent is None or not isinstance(extent[0], LocalFile) or extent[1] % spec.dtype.itemsize:
            raise UnsupportedError(
                "this tensor is not stored as it would be in memory",
                key=key,
                file=self.prefix,
                expected="numbers in one aligned run of bytes in a local file",
                remedy="use read() instead of map()",
            )
        self.check(key)
        mapped: Array = map_bytes(extent[0], extent[1], spec.nbytes).view(spec.dtype.numpy)
        return mapped.reshape(spec.shape)

    def verify(self) -> tuple[int, int]:
        for key, stored in self._stored.items():
            self.check(key)
            extent = self._file.extent(stored)
            if extent is None:
                self.read(key)
            elif stored.spec.nbytes:
                for _ in read_chunks(*extent, stored.spec.nbytes):
                    pass
        if isinstance(self._file, CheckedFile):
            self._file.check_rest()
        return sum(map(self._file.has_checksum, self._stored.values())), len(self._stored)

    def check_files(self) -> None:
        """Does nothing: opening the files has checked them."""

    def hold(self) -> None:
        """Does nothing: the files are open."""

    def is_replaced(self) -> bool:
        """False: the files have been open since their contents were listed."""
        return False

    def release(self, *, for_good: bool) -> None:
        if for_good:
            self.close()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_box(self, key: str, stored: Stored, box: Box) -> None:
        assert self._boxed is not None, "only such files have boxes"
        try:
            self._boxed.check_box(stored, box)
        except MilepostError as error:
            raise self._of_value(error, key) from None

    def _plain_array(self, key: str) -> Array:
        if key in self._objects and key not in self._plain:
            raise refusal(self._objects[key]).with_context(key=key, file=self.prefix)
        array = as_value(self._plain.get(key))
        if array is None:
            raise no_such_key(key, self.keys(), self.prefix)
        return array


def _count(array: Array) -> None:
    if (count := counter()) is not None:
        count(array.nbytes)


def _blocks(spec: TensorSpec) -> Iterator[Box]:
    """Boxes that cover a tensor, each of some of its rows."""
    if not spec.shape:
        yield ()
        return
    rows = max(1, _BLOCK // max(spec.nbytes // max(spec.shape[0], 1), 1))
    for start in range(0, spec.shape[0], rows):
        yield ((start, min(start + rows, spec.shape[0])), *((0, length) for length in spec.shape[1:]))


def _read_box(file: BoxedFile, stored: Stored, box: Box) -> bytes:
    array = new_array(stored.spec.dtype, tuple(stop - start for start, stop in box))
    file.read_box(stored, box, array)
    return array.tobytes()


def is_value(value: Any) -> bool:
    """Whether `as_value` can make an array of a value. It does so on demand, because most plain values are never read."""
    if type(value) is int:
        return value in _INT64
    return type(value) in NUMBERS or isinstance(value, (str, bytes, np.ndarray, np.generic))


def as_value(value: Any) -> Array | None:
    """A plain value as an array, or None if no array has the same value."""
    if isinstance(value, np.ndarray):
        return value
    if not is_value(value):
        return None
    if type(value) in NUMBERS:
        return np.array(value, NUMBERS[type(value)].numpy)
    if isinstance(value, (str, bytes)):
        array = np.empty((), object)
        array[()] = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        return array
    return np.asarray(value)


def _shown(value: Any) -> str:
    """What no array can hold, in a few letters."""
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "()" if isinstance(value, tuple) else "[]"
    return "None" if value is None else type(value).__name__
